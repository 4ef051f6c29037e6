"""Serving on Ray: replicas of our HTTP server behind Ray Serve, with the same requests and answers.

from ray import serve
from shortlist.cluster import deployment

serve.run(deployment("model/", num_replicas=4))
serve.run(deployment("model/", autoscaling_config={"min_replicas": 1, "max_replicas": 8}))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from shortlist.cluster.label_shards import merged_model, shard_folders
from shortlist.errors import ShortlistError, import_extra
from shortlist.kernels.threads import use_cores
from shortlist.model import load
from shortlist.serving.app import App

POLL_SECONDS = 0.05


class ServerApp:
    """Our server as Ray Serve starts ASGI applications: it takes requests when the model is loaded."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        await receive()
        try:
            async with self.app:  # which raises the error, if the model could not be loaded
                while self.app.state == "starting" and not self.app.model_task.done():
                    await asyncio.sleep(POLL_SECONDS)
                if self.app.state != "starting":
                    await send({"type": "lifespan.startup.complete"})
                    await receive()
        except ShortlistError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})


def deployment(
    model: str | Path, *, threads: int = 1, token: str | None = None, server: dict[str, Any] | None = None, **ray: Any
) -> Any:
    """A Ray Serve application that serves a model folder, which all machines must see.

    threads  threads, and cores, of a replica
    token    as `--token` of `shortlist serve`: clients send it with every request
    server   further arguments of the server (`App`), such as limits
    ray      options of `serve.deployment`, such as num_replicas and autoscaling_config

    >>> serve.run(deployment("model/", num_replicas=2))  # doctest: +SKIP
    """
    folder = Path(model).absolute()
    return _application(lambda: App(folder, token=token, threads=threads, **(server or {})), threads, ray).bind()


def sharded_deployment(shards: str | Path, *, threads: int = 1, token: str | None = None, **ray: Any) -> Any:
    """The same for a folder of `save_label_shards`: a replica asks one actor per shard and merges what they find.

    The options of `serve.deployment` are those of the replicas that merge.
    """
    serve = import_extra("ray.serve", "serving on a cluster", "ray")
    folder = Path(shards).absolute()
    shard = serve.deployment(LabelShard, ray_actor_options={"num_cpus": threads})
    handles = [shard.options(name=f"shard-{Path(one).name}").bind(one, threads) for one in shard_folders(folder)[0]]

    def new_app(*handles: Any) -> App:
        def call_shards(method: str, calls: list[tuple[Any, ...]]) -> list[Any]:
            answers = [handle.call.remote(method, *call) for handle, call in zip(handles, calls, strict=True)]
            return [answer.result() for answer in answers]

        return App(folder, token=token, threads=1, load_model=lambda _: merged_model(folder, call_shards))

    return _application(new_app, 1, ray).bind(*handles)


class LabelShard:
    """The part of a model with some of the labels."""

    def __init__(self, folder: str, threads: int) -> None:
        self._pipeline, self._threads = load(folder).pipelines[0], threads

    def call(self, method: Literal["rank", "scores"], *arguments: Any) -> Any:
        with use_cores(self._threads):
            return self._pipeline.rank(*arguments) if method == "rank" else self._pipeline.scores(*arguments)


def _application(new_app: Callable[..., App], cores: int, ray: dict[str, Any]) -> Any:
    serve = import_extra("ray.serve", "serving on a cluster", "ray")

    class Server:
        def __init__(self, *handles: Any) -> None:
            self._handles = handles

        def __serve_build_asgi_app__(self) -> ServerApp:
            return ServerApp(new_app(*self._handles))

        def check_health(self) -> None:
            if self.app.app.state != "ready":  # type: ignore[attr-defined]
                raise RuntimeError("the model is not loaded")

    options = {"name": "shortlist", "ray_actor_options": {"num_cpus": cores}, **ray}
    return serve.deployment(serve.ingress()(Server), **options)
