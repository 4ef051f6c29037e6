/* Preloaded into a process (LD_PRELOAD): lets the n-th change of a file fail, tear, or be the last thing that happens.

   Counted are writes, truncations, syncs, renames, and new or removed files and folders. See crash.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OFF, COUNT, FAIL, FAIL_ON, TORN, KILL, POWER };

static int mode, without_exchange;
static long point, seen;

/* Files with content that is not on disk yet, for POWER: as long as they are open here, they can be cut. */
static struct { int fd; dev_t device; ino_t inode; off_t synced; } dirty[1024];
static int n_dirty;

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)

void faults_arm(int new_mode, long new_point, int new_without_exchange) {
    mode = new_mode, point = new_point, without_exchange = new_without_exchange, seen = 0;
}

long faults_seen(void) { return seen; }

static int is_file(int fd) {
    struct stat facts;
    return mode && fd > 2 && !fstat(fd, &facts) && S_ISREG(facts.st_mode);
}

static void mark_dirty(int fd) {
    struct stat facts;
    if (mode != POWER || fstat(fd, &facts)) return;
    for (int i = 0; i < n_dirty; i++)
        if (dirty[i].device == facts.st_dev && dirty[i].inode == facts.st_ino) return;
    if (n_dirty == 1024) _exit(71);
    dirty[n_dirty].fd = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    dirty[n_dirty].device = facts.st_dev, dirty[n_dirty].inode = facts.st_ino, dirty[n_dirty].synced = facts.st_size;
    n_dirty++;
}

static void mark_synced(int fd) {
    struct stat facts;
    if (mode != POWER || fstat(fd, &facts)) return;
    for (int i = 0; i < n_dirty; i++)
        if (dirty[i].device == facts.st_dev && dirty[i].inode == facts.st_ino) dirty[i].synced = facts.st_size;
}

static void crash(void) {
    int final = mode;
    mode = OFF;
    if (final == POWER)
        for (int i = 0; i < n_dirty; i++) {
            struct stat facts;
            if (!fstat(dirty[i].fd, &facts) && facts.st_size > dirty[i].synced)
                if (ftruncate(dirty[i].fd, dirty[i].synced)) _exit(71);
        }
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether it is this change's turn. Removing cannot fail here: a full disk does not prevent it. */
static int hit(int can_fail) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!mode) return OFF;
    pthread_mutex_lock(&lock);
    seen++;
    int now = mode == FAIL_ON ? seen >= point : mode != COUNT && seen == point;
    pthread_mutex_unlock(&lock);
    return now && (can_fail || (mode != FAIL && mode != FAIL_ON)) ? mode : OFF;
}

#define AROUND(can_fail, error, call) \
    int now = hit(can_fail); \
    if (now == FAIL || now == FAIL_ON) { errno = error; return -1; } \
    if (now == TORN) crash(); \
    int result = call; \
    if (now) crash(); \
    return result

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (!is_file(fd)) return real(fd, data, size);
    mark_dirty(fd);
    int now = hit(1);
    if (now == FAIL || now == FAIL_ON) { errno = ENOSPC; return -1; }
    ssize_t written = real(fd, data, now == TORN ? size / 2 : size);
    if (now) crash();
    return written;
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    REAL(fwrite);
    int fd = fileno(file);
    if (!is_file(fd)) return real(data, size, n, file);
    mark_dirty(fd);
    int now = hit(1);
    if (now == FAIL || now == FAIL_ON) { errno = ENOSPC; return 0; }
    size_t written = real(data, size, now == TORN ? n / 2 : n, file);
    if (now) { fflush(file); crash(); }
    return written;
}

int fsync(int fd) {
    REAL(fsync);
    int now = hit(1);
    if (now == FAIL || now == FAIL_ON) { errno = EIO; return -1; }
    if (now == TORN) crash();
    int result = real(fd);
    mark_synced(fd);
    if (now) crash();
    return result;
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    if (!is_file(fd)) return real(fd, size);
    AROUND(1, EIO, real(fd, size));
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int rename(const char *from, const char *to) { REAL(rename); AROUND(1, EIO, real(from, to)); }

int renameat(int in, const char *from, int out, const char *to) { REAL(renameat); AROUND(1, EIO, real(in, from, out, to)); }

int renameat2(int in, const char *from, int out, const char *to, unsigned flags) {
    REAL(renameat2);
    if (mode && without_exchange) { errno = EINVAL; return -1; }
    AROUND(1, EIO, real(in, from, out, to, flags));
}

int mkdir(const char *path, mode_t bits) { REAL(mkdir); AROUND(1, ENOSPC, real(path, bits)); }

int unlink(const char *path) { REAL(unlink); AROUND(0, EIO, real(path)); }

int unlinkat(int in, const char *path, int flags) { REAL(unlinkat); AROUND(0, EIO, real(in, path, flags)); }

int rmdir(const char *path) { REAL(rmdir); AROUND(0, EIO, real(path)); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t bits = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if (!(flags & O_CREAT)) return real(path, flags, bits); \
        AROUND(1, ENOSPC, real(path, flags, bits)); \
    }
OPEN(open)
OPEN(open64)
