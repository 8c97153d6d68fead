"""`subgrant serve`: bind, prepare the database, say who the first administrator is, serve until told to end.

The socket is bound first, so that a taken port changes nothing and a port that the system chose is part of the
issuer. A made-up secret is printed once to standard output and goes nowhere else.
"""

import asyncio
import multiprocessing
import os
import shlex
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Final, NoReturn

from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from app.cli.composition import FACTORY, FirstAdmin, composition
from app.cli.configuration import configure, one_line
from app.cli.http_protocol import BoundedHttpProtocol
from app.cli.output import ExitCode, Stop, cause, line, warn
from app.settings import Settings

BACKLOG: Final = 2048
KEEP_ALIVE_SECONDS: Final = 65
GRACE_SECONDS: Final = 20
HEALTH_CHECK_SECONDS: Final = 60
"""How long a worker may take to answer its supervisor, its own start included, until it is replaced."""

ANYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 (looked for, not bound)

LOGGING: Final[Mapping[str, object]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "root": {"level": "WARNING", "handlers": ["stderr"]},
}


def serve(*, host: str | None, port: int | None, workers: int | None, database_url: str | None) -> None:
    """Serve until told to end. Raises Stop with the one line why not."""
    _end_quietly()
    settings = configure(host=host, port=port, workers=workers, database_url=database_url)
    with _listening(settings) as listener:
        settings = configure_port(settings, listener)
        with one_line():
            first = asyncio.run(_prepare(settings))
        if first is not None:
            _introduce(first, settings.public_issuer)
        _run(settings, listener)


def configure_port(settings: Settings, listener: socket.socket) -> Settings:
    """The settings with the port that is listened on, here and in the workers' environment."""
    port = listener.getsockname()[1]
    os.environ["SUBGRANT_PORT"] = str(port)
    if settings.issuer is None and settings.host in ANYWHERE:
        warn(f"warning: SUBGRANT_ISSUER is not set, so tokens name {settings.public_issuer}, which is no address")
    return settings.model_copy(update={"port": port})


async def _prepare(settings: Settings) -> FirstAdmin | None:
    return await composition().prepare(settings)


def _listening(settings: Settings) -> socket.socket:
    """A socket that listens already: two servers could both bind one, and only listening tells them apart."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"can't listen on {settings.host}:{settings.port}"
        raise Stop(f"{where}: {cause(error)}", ExitCode.USAGE) from error
    listener.set_inheritable(True)
    return listener


def _introduce(first: FirstAdmin, issuer: str) -> None:
    """Show the first administrator, this once."""
    token_url = f"{issuer}/oauth/token"
    user = shlex.quote(f"{first.client_id}:{first.secret}")
    line("This is the first start: an administrator of the platform was made. Its secret is not shown again.")
    line(f"  client id      {first.client_id}")
    line(f"  client secret  {first.secret}")
    line(f"  token URL      {token_url}")
    line(f"  get a token    curl -s -u {user} -d grant_type=client_credentials {token_url}")


# --- uvicorn ----------------------------------------------------------------------------------------------


def _run(settings: Settings, listener: socket.socket) -> None:
    config = _config(settings)
    if settings.workers > 1:
        _Supervisor(config, listener, _address(settings)).serve()
    else:
        _Announcing(config, _address(settings)).serve_on(listener)


def _config(settings: Settings) -> Config:
    is_many = settings.workers > 1
    return Config(
        FACTORY if is_many else composition().create_app(settings),
        factory=is_many,
        workers=settings.workers,
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="on",
        log_config={**LOGGING, "loggers": {"subgrant": {"level": settings.log_level.upper()}}},
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_worker_healthcheck=HEALTH_CHECK_SECONDS,
    )


def _address(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _announce(address: str) -> None:
    line(f"Subgrant is listening on {address}")


class _Announcing(Server):
    """The one server of a single process."""

    def __init__(self, config: Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    def serve_on(self, listener: socket.socket) -> None:
        try:
            self.run(sockets=[listener])
        except SystemExit as end:
            if end.code == STARTUP_FAILURE:
                _not_started()
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _announce(self._address)


class _Supervisor(Multiprocess):
    """Several servers on one socket, in processes that are replaced when they die."""

    def __init__(self, config: Config, listener: socket.socket, address: str) -> None:
        super().__init__(config, [listener])
        self._address = address
        self._is_announced = False

    def serve(self) -> None:
        try:
            self.run()
        finally:
            _end_workers()
        if not self._is_announced and any(worker.exitcode == STARTUP_FAILURE for worker in self.processes):
            _not_started()

    def keep_subprocess_alive(self) -> None:
        super().keep_subprocess_alive()
        if not self._is_announced and all(worker.is_ready(HEALTH_CHECK_SECONDS) for worker in self.processes):
            self._is_announced = True
            _announce(self._address)


def _not_started() -> NoReturn:
    raise Stop("the server could not start; what is above says why", ExitCode.USAGE)


def _end_workers() -> None:
    """Python waits at its exit for every worker; one that was not told to end would keep it waiting for ever."""
    for worker in multiprocessing.active_children():
        worker.terminate()


def _end_quietly() -> None:
    """Being told to end is no failure, whether it comes before uvicorn listens for it or is repeated after it."""

    def end(*_: object) -> NoReturn:
        _end_workers()
        sys.exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
