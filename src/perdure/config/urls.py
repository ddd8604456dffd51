"""What a URL of an endpoint may be, and what is said of one that isn't (and of a key that isn't)."""

from __future__ import annotations

from urllib.parse import urlsplit

from perdure.errors import Words

NO_KEY: Words = (
    "the key holds characters that no key has; was something else pasted?",
    "密钥中含有密钥不可能有的字符；是否粘贴了别的内容？",
)
NO_HTTP: Words = (
    "base_url must begin with http:// or https://, not {value!r}",
    "base_url 应以 http:// 或 https:// 开头，不能是 {value!r}",
)


def is_http(url: str) -> bool:
    """The URL is one of HTTP, with a host, and a port that can be one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """The URL's host is this machine's loopback, by name or by address."""
    import ipaddress

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
