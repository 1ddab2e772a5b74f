"""Which addresses on the network a session may reach: the public ones, under names that mean what they seem to mean.

It does not know how a name is resolved or a page is fetched: it looks at texts. Whoever fetches calls `check_url`, resolves
the host that it returned (and no other spelling of it) once, hands *all* the answers to `check_addresses`, connects to one of
those, and begins again at each redirect.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from bubbles.errors import Refused

_LONGEST_URL = 8192
_LONGEST_HOST = 253
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?:[/?#].*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_DOTS = str.maketrans("\u3002\uff0e\uff61", "...")  # what IDNA takes for a dot
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa", "localdomain", "lan")

_V4 = {
    IPv4Network(network): why
    for network, why in {
        "0.0.0.0/8": "this host",
        "10.0.0.0/8": "a private network",
        "100.64.0.0/10": "a provider's inner network",
        "127.0.0.0/8": "this machine",
        "168.63.129.16/32": "a cloud's own service",
        "169.254.0.0/16": "link-local, where clouds keep their metadata",
        "172.16.0.0/12": "a private network",
        "192.0.0.0/24": "set aside for protocols",
        "192.0.2.0/24": "for documentation",
        "192.88.99.0/24": "a 6to4 relay",
        "192.168.0.0/16": "a private network",
        "198.18.0.0/15": "for benchmarks",
        "198.51.100.0/24": "for documentation",
        "203.0.113.0/24": "for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
    }.items()
}
_V6 = {
    IPv6Network(network): why
    for network, why in {
        "::/128": "no address",
        "::1/128": "this machine",
        "64:ff9b:1::/48": "a local translator to IPv4",
        "100::/64": "a black hole",
        "2001::/23": "set aside for protocols, Teredo among them",
        "2001:db8::/32": "for documentation",
        "3fff::/20": "for documentation",
        "fc00::/7": "a private network",
        "fe80::/10": "link-local",
        "fec0::/10": "a site's inner network",
        "ff00::/8": "multicast",
    }.items()
}
_V6_PUBLIC = IPv6Network("2000::/3")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_V4_AT_THE_END = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))  # compatible, mapped, translated, NAT64
_ISATAP = 0x5EFE


def check_url(url: str, ports: Collection[int] = (80, 443)) -> tuple[str, str, int]:
    """(scheme, host, port) of a URL that may be fetched; the host in lower-case ASCII, an IPv6 address without brackets.

    Raises Refused, with the reason, where it may not. A host that is a name has yet to be resolved and its addresses checked.

    >>> check_url("https://Example.com/a?b#c"), check_url("http://bücher.example.")
    (('https', 'example.com', 443), ('http', 'xn--bcher-kva.example', 80))
    """
    if len(url) > _LONGEST_URL:
        raise Refused(f"a URL of {len(url)} characters; {_LONGEST_URL} are the most")
    odd = next((char for char in url if _is_unprintable(char) or char == "\\"), None)
    if odd is not None:
        raise _refused(url, f"it contains {ascii(odd)}", "write such characters as %XX")
    parts = _URL.fullmatch(url)
    if not parts:
        raise _refused(url, "it is not a full URL", "begin with https://")
    scheme = parts["scheme"].lower()
    if scheme not in _PORTS:
        raise _refused(url, f"only http and https are fetched, not {scheme}")
    if "@" in parts["authority"]:
        raise _refused(url, "a name or password stands before the host")
    place = _AUTHORITY.fullmatch(parts["authority"])
    if not place:
        raise _refused(url, f"{ascii(parts['authority'])} is not a host")
    port = int(place["port"] or _PORTS[scheme])
    if port not in ports:
        raise _refused(url, f"port {port} is not among those allowed ({', '.join(map(str, sorted(ports)))})")
    return scheme, _host(url, place["host"]), port


def check_addresses(host: str, addresses: Iterable[str]) -> list[str]:
    """`addresses`, the answers of a resolver, if there are any and all of them are public. Raises Refused otherwise."""
    found = list(addresses)
    if not found:
        raise Refused(f"{host} has no address")
    for address in found:
        if why := why_not_public(address):
            raise Refused(f"{host} has the address {address}, which is not public: {why}")
    return found


def is_public(address: str) -> bool:
    """Whether an address, as a resolver or `getpeername` gives it, lies on the public network and stands for nothing else.

    >>> is_public("9.9.9.9"), is_public("::ffff:127.0.0.1")
    (True, False)
    """
    return not why_not_public(address)


def why_not_public(address: str) -> str:
    """What an address is, if it is not public; "" if it is."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "it is not an address"
    return _flaw(parsed)


def _flaw(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return _listed(address) or ("" if address.is_global else "not on the public network")
    if why := _listed(address):
        return why
    wrapped, alone = _inside(address)
    if wrapped is not None and (why := _flaw(wrapped)):
        return f"it stands for {wrapped}: {why}"
    if alone:
        return ""
    return "" if address in _V6_PUBLIC and address.is_global and not address.is_reserved else "not on the public network"


def _listed(address: IPv4Address | IPv6Address) -> str:
    table: dict[IPv4Network, str] | dict[IPv6Network, str] = _V4 if isinstance(address, IPv4Address) else _V6
    return next((why for network, why in table.items() if address in network), "")


def _inside(address: IPv6Address) -> tuple[IPv4Address | None, bool]:
    """The IPv4 address that an IPv6 address carries, and whether it is all that counts (else the address itself must be public too)."""
    bits = int(address)
    if any(address in network for network in _V4_AT_THE_END):
        return IPv4Address(bits & 0xFFFFFFFF), True
    if address in _SIX_TO_FOUR:
        return IPv4Address(bits >> 80 & 0xFFFFFFFF), True
    if bits >> 32 & 0xFFFF == _ISATAP and bits >> 48 & 0xFDFF == 0:
        return IPv4Address(bits & 0xFFFFFFFF), False
    return None, False


def _host(url: str, text: str) -> str:
    """The host's one spelling. What is an address in any reading must be one in the plain reading, and public."""
    if text.startswith("["):
        return _address(url, text[1:-1], 6)
    labels = [_label(url, label) for label in _normal(text).removesuffix(".").split(".")]
    host = ".".join(labels)
    if _NUMBER.fullmatch(labels[-1]):
        if host != text.removesuffix("."):
            raise _refused(url, "its host is an address in disguise")
        return _address(url, host, 4)
    if len(host) > _LONGEST_HOST:
        raise _refused(url, "its host is too long")
    if len(labels) == 1 or any(host == name or host.endswith(f".{name}") for name in _LOCAL_NAMES):
        raise _refused(url, f"{host} is a name of a local network")
    return host


def _address(url: str, text: str, version: int) -> str:
    try:
        if "%" in text or (version == 4 and text.endswith(".")):
            raise ValueError
        address = IPv4Address(text) if version == 4 else IPv6Address(text)
    except ValueError:
        raise _refused(url, f"{ascii(text)} is not an address in the usual spelling") from None
    if why := _flaw(address):
        raise _refused(url, f"{address} is not public: {why}")
    return str(address)


def _normal(text: str) -> str:
    """NFKC in lower case with one kind of dot: what a resolver makes of a name in the end."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).translate(_DOTS)


def _label(url: str, label: str) -> str:
    """One label of a name as the DNS carries it."""
    if label.startswith("xn--"):
        try:
            plain = label[4:].encode("ascii").decode("punycode")
        except UnicodeError:
            plain = ""
        if plain.isascii() or _normal(plain) != plain or _encoded(plain) != label:
            raise _refused(url, f"{ascii(label)} is a name in disguise")
        _check_letters(url, plain)
    elif not label.isascii():
        _check_letters(url, label)
        label = _encoded(label)
    if not _LABEL.fullmatch(label):
        raise _refused(url, f"{ascii(label)} is not part of a host's name")
    return label


def _encoded(label: str) -> str:
    return "xn--" + label.encode("punycode").decode("ascii")


def _check_letters(url: str, label: str) -> None:
    odd = next((char for char in label if unicodedata.category(char)[0] not in "LMN" and char != "-"), None)
    if odd is not None or unicodedata.category(label[0])[0] == "M":
        raise _refused(url, f"{ascii(label)} is not part of a host's name")


def _is_unprintable(char: str) -> bool:
    """Controls, format characters (bidi among them), surrogates, and every kind of space."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")


def _refused(url: str, why: str, remedy: str = "") -> Refused:
    shown = ascii(url)[1:-1]
    return Refused(f"{shown[:200]}{'…' if len(shown) > 200 else ''} is refused: {why}", remedy=remedy)
