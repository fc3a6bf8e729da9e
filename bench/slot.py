"""The place of one start of a peer: ports, directory, backends, and its files, filled in.

Templates know two kinds of names. `@PORT@` is a value. A line with `@OLD@`, `@NEW@` or `@SERVICE@` is
written once for each old backend, new backend or service; the name becomes its address, and for a service the
address of its only backend.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.setting import Setting

HERE = Path(__file__).parent
#: So many backends of each kind are there from the start.
MOST_BACKENDS = 1000


def addresses(network: int, count: int) -> tuple[str, ...]:
    """The first addresses of 127.NETWORK.0.0/16. All of 127.0.0.0/8 is on this machine."""
    return tuple(f"127.{network}.{number // 250}.{number % 250 + 1}" for number in range(count))


ALL_OLD, ALL_NEW = addresses(20, MOST_BACKENDS), addresses(21, MOST_BACKENDS)


@dataclass(frozen=True)
class Slot:
    """`backends`: the port of every backend, each at an address of its own."""

    directory: Path
    port: int
    admin: int
    backends: int
    setting: Setting

    @property
    def old(self) -> tuple[str, ...]:
        return ALL_OLD[: self.setting.backends // 2]

    @property
    def new(self) -> tuple[str, ...]:
        return ALL_NEW[: max(self.setting.services, (self.setting.backends + 1) // 2)]

    @property
    def services(self) -> tuple[str, ...]:
        return self.new[: self.setting.services]

    @property
    def url(self) -> str:
        """Where clients find the peer."""
        return f"{'https' if self.setting.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> tuple[Path, Path]:
        """The certificate and the key of a setting with TLS. They are beside the directory of each start."""
        kind = self.setting.tls
        return self.directory.parent / f"{kind}.crt", self.directory.parent / f"{kind}.key"

    def fill(self, template: str, more: Mapping[str, object] | None = None) -> Path:
        """Write the file `template` of the bench, filled in, into the directory of this start."""
        text = (HERE / template).read_text()
        values = {
            "PORT": self.port,
            "ADMIN": self.admin,
            "BACKENDS": self.backends,
            "DIR": self.directory,
            "CONNECTIONS": self.setting.connections,
            **(more or {}),
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        for name, each in (("OLD", self.old), ("NEW", self.new), ("SERVICE", self.services)):
            text = _repeated(text, f"@{name}@", each)
        filled = self.directory / Path(template).name
        filled.write_text(text)
        return filled


def _repeated(text: str, name: str, values: tuple[str, ...]) -> str:
    """Write each line that has `name` once for each value."""
    lines = []
    for line in text.splitlines(keepends=True):
        lines += [line.replace(name, value) for value in values] if name in line else [line]
    return "".join(lines)
