"""Typed settings from `SUBGRANT_*` environment variables and an optional TOML file. Units are in the names.

A wrong setting stops the start with one clear line; nothing is read from anywhere else.
"""

import os
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from app.usecases.world import Rules

CONFIG_FILE_VARIABLE = "SUBGRANT_CONFIG_FILE"

ToolServerAddresses = Literal["public", "loopback", "private"]


class SettingsInvalid(Exception):
    """One line that says which setting is wrong and why."""


class Settings(BaseSettings):
    """Everything an operator may decide."""

    model_config = SettingsConfigDict(env_prefix="SUBGRANT_", extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=0, le=65_535)
    workers: int = Field(default=1, ge=1, le=64)
    issuer: str | None = None
    database_url: str = "sqlite:///subgrant.db"
    migrate_at_start: bool = True
    key_encryption_key: SecretStr | None = None
    signing_algorithm: Literal["EdDSA", "ES256"] = "EdDSA"
    bootstrap_client_id: str = Field(default="admin", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$")
    bootstrap_client_secret: SecretStr | None = Field(default=None, min_length=1)

    allow_grant_bearer: bool = True
    dpop_nonces: Literal["off", "required"] = "off"
    tool_server_addresses: ToolServerAddresses | None = None

    default_grant_lifetime_seconds: int = Field(default=600, ge=1, le=86_400)
    access_token_lifetime_seconds: int = Field(default=600, ge=1, le=86_400)
    max_access_token_lifetime_seconds: int = Field(default=3600, ge=1, le=86_400)
    max_children_per_grant: int = Field(default=1000, ge=1)
    max_grants_per_tree: int = Field(default=2000, ge=1)
    database_pool_size: int = Field(default=10, ge=1, le=500)
    database_timeout_seconds: float = Field(default=10, gt=0)
    reconcile_every_seconds: float = Field(default=5, gt=0)
    settle_grace_seconds: float = Field(default=15, gt=0)
    watch_closings_every_seconds: float = Field(default=0.5, gt=0)
    policy_timeout_seconds: float = Field(default=1, gt=0, le=10)
    key_lead_seconds: int = Field(default=60, ge=0, le=2_592_000)
    keys_good_for_seconds: float = Field(default=5, ge=0.5, le=60)
    outside_keys_ask_every_seconds: float = Field(default=10, ge=1, le=3600)
    outside_keys_max_age_seconds: float = Field(default=3600, ge=10, le=86_400)
    outside_keys_last_good_seconds: float = Field(default=14_400, ge=10, le=604_800)
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("issuer")
    @classmethod
    def _issuer(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise ValueError("must be an absolute http(s) URL without query or fragment (RFC 8414 §2)")
        return value.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _database_url(cls, value: str) -> str:
        """The URL with the driver that is built in for its database."""
        scheme, separator, rest = value.partition("://")
        # Whatever driver is named: the one that is used is built in.
        drivers = {"sqlite": "sqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
        driver = drivers.get(scheme.partition("+")[0])
        if not separator or driver is None:
            raise ValueError("must start with sqlite:// or postgresql://")
        return f"{driver}://{rest}"

    @property
    def public_issuer(self) -> str:
        """The issuer: as configured, else the address that the server listens on."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.issuer or f"http://{host}:{self.port}"

    @property
    def sqlite_file(self) -> Path | None:
        """The embedded database's file, None with PostgreSQL."""
        prefix = "sqlite:///"
        return Path(self.database_url.removeprefix(prefix)) if self.database_url.startswith(prefix) else None

    @property
    def allowed_tool_server_addresses(self) -> ToolServerAddresses:
        """Where tool servers may be: as set, else beside a service that is itself for this machine only.

        The issuer tells, not the address that is listened on: behind a reverse proxy that is loopback as well.
        """
        if self.tool_server_addresses is not None:
            return self.tool_server_addresses
        return "loopback" if _is_loopback(urlsplit(self.public_issuer).hostname or "") else "public"

    @property
    def rules(self) -> Rules:
        """The part of the settings that the use cases know."""
        return Rules(
            issuer=self.public_issuer,
            default_grant_lifetime=timedelta(seconds=self.default_grant_lifetime_seconds),
            access_token_lifetime=timedelta(seconds=self.access_token_lifetime_seconds),
            settle_grace=timedelta(seconds=self.settle_grace_seconds),
            key_lead=timedelta(seconds=self.key_lead_seconds),
            keys_good_for=timedelta(seconds=self.keys_good_for_seconds),
            max_access_token_lifetime=timedelta(seconds=self.max_access_token_lifetime_seconds),
            max_children_per_grant=self.max_children_per_grant,
            max_grants_per_tree=self.max_grants_per_tree,
            allow_grant_bearer=self.allow_grant_bearer,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # a signature of pydantic-settings
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the TOML file that `SUBGRANT_CONFIG_FILE` names."""
        sources = (init_settings, env_settings)
        file = os.environ.get(CONFIG_FILE_VARIABLE)
        return sources if file is None else (*sources, TomlConfigSettingsSource(settings_cls, Path(file)))


def load_settings(**overrides: object) -> Settings:
    """The settings, or SettingsInvalid with one line that names the first wrong one."""
    _refuse_missing_file(os.environ.get(CONFIG_FILE_VARIABLE))
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # pydantic judges the values
    except ValidationError as error:
        fault = error.errors()[0]
        name = "_".join(str(part) for part in fault["loc"]).upper()
        message = str(fault["msg"]).removeprefix("Value error, ")
        raise SettingsInvalid(f"SUBGRANT_{name}: {message}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_missing_file(name: str | None) -> None:
    # A misspelled name must not mean that every setting has its default.
    if name is not None and not Path(name).is_file():
        raise SettingsInvalid(f"{CONFIG_FILE_VARIABLE}: there is no file {name}")
