# Trains, predicts and serves with the default recipe. No torch, no root, no writable installation.
#
#   docker build -t shortlist .
#   docker run --rm -v "$PWD:/data" --user "$(id -u):$(id -g)" shortlist train pairs.jsonl --out model/
#   docker compose up
FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python -m venv /opt/shortlist \
    && /opt/shortlist/bin/pip install --no-cache-dir -c /src/constraints.txt "/src[serve,parquet,zstd]"

FROM python:3.11-slim
COPY --from=build /opt/shortlist /opt/shortlist
ENV PATH=/opt/shortlist/bin:$PATH PYTHONUNBUFFERED=1
USER nobody
WORKDIR /data
EXPOSE 8000
# SIGTERM saves a training, and lets requests in flight finish.
STOPSIGNAL SIGTERM
ENTRYPOINT ["shortlist"]
CMD ["--help"]
