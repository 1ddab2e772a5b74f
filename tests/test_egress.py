"""Every address and spelling that sandbox research found to lead inside, and some that lead outside."""

from __future__ import annotations

import doctest
import socket
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bubbles import egress
from bubbles.egress import check_addresses, check_url, is_public, why_not_public
from bubbles.errors import Refused

PUBLIC = """
1.1.1.1 8.8.8.8 9.9.9.9 93.184.216.34 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1 169.253.1.1 192.0.1.1
198.17.255.255 198.20.0.1 223.255.255.255
2606:4700:4700::1111 2001:4860:4860::8888 2a00:1450:4001::1 2620:4f:8000::1
::ffff:8.8.8.8 ::8.8.8.8 ::ffff:0:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1
2a00:1450:4001:1:0:5efe:8.8.8.8 2a00:1450:4001:1:200:5efe:8.8.8.8
"""

PRIVATE = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.1.2.3 127.255.255.255 168.63.129.16
169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.9 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255
198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
:: ::1 100::1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 febf::1 fec0::1
ff02::1 ff0e::1 4000::1 1::1
::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 ::10.0.0.1 ::7f00:1 ::ffff:0:127.0.0.1 ::ffff:0:a9fe:a9fe
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1 64:ff9b::127.0.0.1
64:ff9b:1::1 64:ff9b:1::8.8.8.8 64:ff9b:1:7f00:0:100:: 64:ff9b:1:a9fe:a9:fe00::
2002:7f00:1:: 2002:7f00:1::1 2002:a9fe:a9fe:: 2002:a00:1::1 2002:c0a8:101::1 2002:e000:1::
2001:0:7f00:1:0:ffff:f7f7:f7f7 2001:0:808:808:0:ffff:80ff:fffe 2001:0:808:808:0:ffff:f7f7:f7f7
2a00:1450:4001:1:0:5efe:127.0.0.1 2a00:1450:4001:1:200:5efe:10.0.0.1 2a00:1450:4001:1:0:5efe:a9fe:a9fe fe80::5efe:8.8.8.8 fe80::200:5efe:8.8.8.8
"""

NOT_ADDRESSES = [
    "",
    "localhost",
    "0",
    "127.1",
    "0x7f000001",
    "0177.0.0.1",
    "2130706433",
    "127.0.0.1.",
    " 127.0.0.1",
    "8.8.8.08",
    "1.1.1.1\n",
    "[::1]",
    "8.8.8.8/32",
]


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public(address: str) -> None:
    assert why_not_public(address) == ""
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE.split() + NOT_ADDRESSES)
def test_not_public(address: str) -> None:
    assert not is_public(address)
    assert why_not_public(address)


@given(st.integers(0, 2**32 - 1))
def test_no_wrapping_makes_an_address_public(bits: int) -> None:
    plain, number = str(IPv4Address(bits)), bits
    wrapped = [
        f"::ffff:{plain}",
        f"::ffff:0:{plain}",
        f"64:ff9b::{plain}",
        f"2a00:1450::5efe:{plain}",
        str(IPv6Address(0x2002 << 112 | number << 80 | 1)),
    ] + ([f"::{plain}"] if number > 1 else [])
    assert {is_public(address) for address in wrapped} == {is_public(plain)}
    assert not IPv4Address(bits).is_private or not is_public(plain)
    assert not is_public(str(IPv6Address(0x2001 << 112 | number << 64 | (number ^ 0xFFFFFFFF))))


@given(st.integers(0, 2**128 - 1))
def test_what_the_library_refuses_is_refused(bits: int) -> None:
    address = IPv6Address(bits)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_link_local or address.is_site_local:
        assert not is_public(str(address)) or address.ipv4_mapped or bits >> 32 == 0 or bits >> 32 == 0x64FF9B << 64 or bits >> 112 == 0x2002


GOOD = {
    "http://example.com": ("http", "example.com", 80),
    "https://example.com/": ("https", "example.com", 443),
    "HTTPS://EXAMPLE.COM:443/Path?q=@x#:8080@frag": ("https", "example.com", 443),
    "http://example.com:443/": ("http", "example.com", 443),
    "http://example.com.": ("http", "example.com", 80),
    "http://example.com?x=http://127.0.0.1": ("http", "example.com", 80),
    "http://example.com#@127.0.0.1": ("http", "example.com", 80),
    "http://bücher.example/": ("http", "xn--bcher-kva.example", 80),
    "http://BÜCHER.example/": ("http", "xn--bcher-kva.example", 80),
    "http://xn--bcher-kva.example/": ("http", "xn--bcher-kva.example", 80),
    "http://例え。テスト/": ("http", "xn--r8jz45g.xn--zckzah", 80),
    "http://faß.de/": ("http", "xn--fa-hia.de", 80),
    "http://ｅｘａｍｐｌｅ．com/": ("http", "example.com", 80),
    "http://a_b.r3---sn.example.com/": ("http", "a_b.r3---sn.example.com", 80),
    "http://1.1.1.1/": ("http", "1.1.1.1", 80),
    "http://1.1.1.1.": ("http", "1.1.1.1", 80),
    "https://[2606:4700:4700:0::1111]/x": ("https", "2606:4700:4700::1111", 443),
    "http://1.2.3.4.example.com": ("http", "1.2.3.4.example.com", 80),
    "http://0x7f.1.example.com": ("http", "0x7f.1.example.com", 80),
    "https://zh.wikipedia.org/wiki/沙盒": ("https", "zh.wikipedia.org", 443),
}

BAD = {
    # other schemes, no scheme
    "ftp://example.com": "only http",
    "file:///etc/passwd": "only http",
    "gopher://example.com:70": "only http",
    "javascript://example.com": "only http",
    "data:text/html,x": "not a full URL",
    "example.com": "not a full URL",
    "//example.com": "not a full URL",
    "http:example.com": "not a full URL",
    "http:/example.com": "not a full URL",
    "": "not a full URL",
    "http://": "not part of a host",
    "http:///etc": "not part of a host",
    # userinfo
    "http://user@example.com": "before the host",
    "http://user:pw@example.com": "before the host",
    "http://example.com@127.0.0.1": "before the host",
    "http://@example.com": "before the host",
    # ports
    "http://example.com:22": "port 22",
    "http://example.com:8080": "port 8080",
    "http://example.com:0": "port 0",
    "http://example.com:": "is not a host",
    "http://example.com:80:80": "is not a host",
    "http://example.com:+80": "is not a host",
    "http://example.com:８０": "is not a host",
    "http://example.com:000080": "is not a host",
    # characters
    "http://example.com\\@127.0.0.1": "contains",
    "http:\\\\example.com": "contains",
    "http://example.com\t": "contains",
    "http://exam\nple.com": "contains",
    "http://example.com/\r\nHost: x": "contains",
    " http://example.com": "contains",
    "http://example.com /": "contains",
    "http://exam\0ple.com": "contains",
    "http://exam\x7fple.com": "contains",
    "http://exam\x85ple.com": "contains",
    "http://exam\u00a0ple.com": "contains",
    "http://exam\u200bple.com": "contains",
    "http://exam\u00adple.com": "contains",
    "http://exam\u202eple.com": "contains",
    "http://exam\ud800ple.com": "contains",
    "http://exam%70le.com": "not part of a host",
    "http://127.0.0.1%2f.example.com": "not part of a host",
    "http://a℀b.example": "not part of a host",
    "http://exa＠mple.com": "not part of a host",
    "http://example.com／path": "not part of a host",
    "http://a..example.com": "not part of a host",
    "http://.example.com": "not part of a host",
    "http://example.com..": "not part of a host",
    "http://-a.example.com": "not part of a host",
    "http://☃.example": "not part of a host",
    "http://\u0301a.example": "not part of a host",
    f"http://{'a' * 64}.example": "not part of a host",
    f"http://{'a.' * 130}example": "too long",
    "http://" + "a" * 9000: "are the most",
    # names that are other names
    "http://xn--.example": "in disguise",
    "http://xn--example-.com": "in disguise",
    "http://xn--a.example": "not part of a host",
    "http://xn--\u00fc.example": "in disguise",
    "http://xn--BCHER-KVA99999999.example": "in disguise",
    # local names
    "http://localhost": "local network",
    "http://LOCALHOST.": "local network",
    "http://ⓛocalhost": "local network",
    "http://a.localhost": "local network",
    "http://router": "local network",
    "http://printer.local": "local network",
    "http://metadata.google.internal": "local network",
    "http://nas.home.arpa": "local network",
    # addresses in odd spellings
    "http://0": "usual spelling",
    "http://0/": "usual spelling",
    "http://127.1": "usual spelling",
    "http://127.0.1": "usual spelling",
    "http://0x7f000001": "usual spelling",
    "http://0x7f.1": "usual spelling",
    "http://0X7F.0.0.1": "in disguise",
    "http://127.0.0.0x1": "usual spelling",
    "http://0177.0.0.1": "usual spelling",
    "http://2130706433": "usual spelling",
    "http://017700000001": "usual spelling",
    "http://127.0.0.1.2": "usual spelling",
    "http://256.1.1.1": "usual spelling",
    "http://example.1": "usual spelling",
    "http://1.1.1.1..": "not part of a host",
    "http://①②⑦.0.0.1": "in disguise",
    "http://127。0。0。1": "in disguise",
    "http://１２７.0.0.1": "in disguise",
    "http://127.0.0.１": "in disguise",
    "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏": "in disguise",
    "http://1.1.1.①": "in disguise",
    "http://[::1%eth0]": "usual spelling",
    "http://[::1%25eth0]": "usual spelling",
    "http://[v1.fe]": "usual spelling",
    "http://[127.0.0.1]": "usual spelling",
    "http://[]": "usual spelling",
    "http://[::１]": "usual spelling",
    "http://[::1": "is not a host",
    "http://::1/": "is not a host",
    "http://[::1]x": "is not a host",
    "http://x[::1]": "is not a host",
    # addresses that are not public
    "http://127.0.0.1": "this machine",
    "http://0.0.0.0": "this host",
    "http://169.254.169.254/latest/meta-data/": "metadata",
    "http://10.0.0.1": "private",
    "http://100.64.0.1": "inner network",
    "http://[::1]": "this machine",
    "http://[::]": "no address",
    "http://[::ffff:7f00:1]": "stands for 127.0.0.1",
    "http://[::ffff:127.0.0.1]": "stands for 127.0.0.1",
    "http://[64:ff9b::a9fe:a9fe]": "stands for 169.254.169.254",
    "http://[64:ff9b::7f00:1]": "stands for 127.0.0.1",
    "http://[64:ff9b:1::1]": "translator",
    "http://[::127.0.0.1]": "stands for 127.0.0.1",
    "http://[2002:7f00:1::]": "stands for 127.0.0.1",
    "http://[2001:0:808:808:0:ffff:80ff:fffe]": "Teredo",
    "http://[2a00:1450:4001:1:0:5efe:7f00:1]": "stands for 127.0.0.1",
    "http://[fec0::1]": "inner network",
    "http://[fe80::1]": "link-local",
    "http://[ff02::1]": "multicast",
}


@pytest.mark.parametrize("url", GOOD)
def test_good_urls(url: str) -> None:
    assert check_url(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD, ids=lambda url: ascii(url)[:60])
def test_bad_urls(url: str) -> None:
    with pytest.raises(Refused) as refused:
        check_url(url)
    assert BAD[url] in refused.value.text
    assert refused.value.text.isascii() or "…" in refused.value.text
    assert len(refused.value.text) < 600


def test_ports_are_the_callers() -> None:
    assert check_url("http://example.com:8080", ports={8080}) == ("http", "example.com", 8080)
    with pytest.raises(Refused, match="port 80 "):
        check_url("http://example.com", ports={443})


def test_all_addresses_of_a_name_must_be_public() -> None:
    assert check_addresses("example.com", ["1.1.1.1", "2606:4700:4700::1111"]) == ["1.1.1.1", "2606:4700:4700::1111"]
    with pytest.raises(Refused, match="example.com has the address 127.0.0.1"):
        check_addresses("example.com", ["1.1.1.1", "127.0.0.1"])
    with pytest.raises(Refused, match="no address"):
        check_addresses("example.com", iter([]))


SPELLINGS = st.text("0123456789.xXaAbBfF:[]%@/\\?#①②⑦。．ⓛｌlocahst-_ \t\u00ad\u0301ü℀", max_size=24)


@given(SPELLINGS)
@example("127。0。0。1")
def test_whatever_is_accepted_means_one_thing(text: str) -> None:
    try:
        _, host, _ = check_url(f"http://{text}")
    except Refused:
        return
    assert host.isascii()
    assert host == host.lower()
    try:
        packed = socket.inet_aton(host)  # every spelling that the C library takes for an address
    except OSError:
        packed = None
    if packed:
        assert str(IPv4Address(packed)) == host
        assert is_public(host)
    elif ":" in host:
        assert is_public(host)
    assert check_url(f"http://[{host}]" if ":" in host else f"http://{host}")[1] == host
    seen = urlsplit(f"http://{text}").hostname or ""
    assert seen.isascii() is False or seen.rstrip(".") == host or ":" in host


def test_doctest() -> None:
    assert doctest.testmod(egress).failed == 0
