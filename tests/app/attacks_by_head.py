"""Attacks that are seen by the first lines of a request: whom it is for, who asks, how long it is, how it is spoken."""

from tests.app.attack import FOREIGN, ME, PNG, Attack, chunked, from_page, get, length, raw, sent
from tests.app.client import parcel, post

HOSTS = [
    get("a foreign host", "403", "/", host="evil.example"),
    get("a foreign host with our port", "403", "/", host="evil.example:{port}"),
    get("our name inside a foreign one", "403", "/", host="localhost.evil.example:{port}"),
    get("a name that resolves to us", "403", "/", host="127.0.0.1.nip.io:{port}"),
    get("our address without the port", "403", "/", host="127.0.0.1"),
    get("our address with another port", "403", "/", host="127.0.0.1:1"),
    get("our address as a user", "403", "/", host="127.0.0.1:{port}@evil.example"),
    get("a dot after our name", "403", "/", host="localhost.:{port}"),
    get("all addresses", "403", "/", host="0.0.0.0:{port}"),
    get("our address as a number", "403", "/", host="2130706433:{port}"),
    get("another address of loopback", "403", "/", host="127.0.0.2:{port}"),
    get("no host in it", "400 403", "/", host=""),
    get("our address as forwarded", "403", "/", "X-Forwarded-Host: 127.0.0.1:{port}", host="evil.example"),
    get("a whole foreign address", "403", "http://evil.example/", host="evil.example"),
    get("a whole foreign address under our host", "404", "http://evil.example/"),
    raw("two hosts", "400", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: evil.example\r\n\r\n"),
    raw("no host", "400", b"GET / HTTP/1.1\r\n\r\n"),
    raw("no host, as of 1996", "403", b"GET / HTTP/1.0\r\n\r\n"),
    get("a host of 10,000 letters", "403", "/", host="x" * 10_000),
    Attack(
        "a name that was pointed at us",
        "403",
        lambda port: post(port, "/picture", parcel(None, PNG), "Sec-Fetch-Site: same-origin").replace(
            b"127.0.0.1", b"evil.example"
        ),
    ),
]

ORIGINS = [
    from_page("a foreign origin", "403", origin=FOREIGN),
    from_page("no origin to speak of", "403", origin="null"),
    from_page("another scheme", "403", origin="https://127.0.0.1:{port}"),
    from_page("another port", "403", origin="http://127.0.0.1:1"),
    from_page("another of our names", "403", origin="http://localhost:{port}"),
    from_page("our origin inside a foreign one", "403", origin=ME + ".evil.example"),
    from_page("our origin as a user", "403", origin=ME + "@evil.example"),
    from_page("neither origin nor site", "403", origin=""),
    from_page("another site", "403", "Sec-Fetch-Site: cross-site", origin=""),
    from_page("another port of this machine", "403", "Sec-Fetch-Site: same-site", origin=""),
    from_page("no page at all", "403", "Sec-Fetch-Site: none", origin=""),
    from_page("our origin, but another site", "403", "Sec-Fetch-Site: cross-site"),
    from_page("our site, but a foreign origin", "403", "Sec-Fetch-Site: same-origin", origin=FOREIGN),
    from_page("two origins", "400", f"Origin: {FOREIGN}"),
    from_page("a form of text", "415", kind="text/plain"),
    from_page("a form", "415", kind="application/x-www-form-urlencoded"),
    from_page("a form with files", "415", kind="multipart/form-data; boundary=x"),
    from_page("compressed", "415", "Content-Encoding: gzip"),
    get("a picture in a foreign page", "403", "/samples/0", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
    get("a script in a foreign page", "403", "/samples", "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: script"),
    get(
        "a frame in a foreign page",
        "403",
        "/",
        *("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
    ),
    get("asking for leave", "405", "/match", f"Origin: {FOREIGN}", method="OPTIONS"),
]

LENGTHS = [
    from_page("two lengths", "400", "Content-Length: 5"),
    from_page("a length and chunks", "400", "Transfer-Encoding: chunked"),
    length("51000001", "413"),
    length("9" * 30, "400 413"),
    *(length(said, "400") for said in ("-1", "0x10", "+5", "1e3", "5, 5000000000", "\xb2", "5 5", "five")),
    raw("chunks of 60 MB", "413 0", chunked(*[b"%x\r\n" % 1_000_000 + bytes(1_000_000) + b"\r\n"] * 60)),
    raw("a chunk of no size", "400 0", chunked(b"zz\r\nabc\r\n")),
    raw("a chunk of negative size", "400 0", chunked(b"-5\r\nabc\r\n")),
    raw("a chunk of 2**80 bytes", "400 0", chunked(b"%x\r\nabc\r\n" % 2**80)),
    raw("a chunk with a long remark", "400 0", chunked(b"5;" + b"x" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n")),
    raw("chunks of gzip", "400 501", chunked(b"0\r\n\r\n").replace(b": chunked", b": gzip, chunked")),
    get("a body with a GET", "400", "/", "Content-Length: 5"),
    get("chunks with a GET", "400", "/", "Transfer-Encoding: chunked"),
    get("leave to send what is foreign", "405", "/picture", "Expect: 100-continue", method="PUT"),
]

ELSEWHERE = """
    /static/../server.py /static/%2e%2e/server.py /static/..%2fserver.py /static/%252e%252e/server.py
    /static/..%5cserver.py /static/%c0%ae%c0%ae/server.py //etc/passwd /static//etc/passwd /static/%2fetc%2fpasswd
    /../../../../etc/passwd /static/pair.js%00.html /%00 /static/ /static /samples/-1 /samples/99 /samples/0/
    /samples/x /samples/0%2f..%2fpoints.json /SAMPLES /samples/cat.jpg /gradio_api/file=/etc/passwd
    /gradio_api/upload /file=/etc/passwd /config /docs /openapi.json /.git/config /server.py /match/.. /%f0%9f%98%80
    /static/pair.js/ /static/pair.js;x=1 /~root /index.html
"""
PATHS = [get(f"the path {path[:40]}", "404", path) for path in [*ELSEWHERE.split(), "/" + "x" * 10_000]]

METHODS = [
    *(
        get(f"the method {method}", "405", "/match", method=method)
        for method in ("PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 500)
    ),
    get("reading what is asked", "405", "/match"),
    get("a method in a header", "405", "/picture", "X-HTTP-Method-Override: POST"),
    *(sent(f"asking {path}", parcel(None, PNG), path, "405") for path in ("/", "/samples", "/static/pair.js")),
    sent("asking nothing", parcel(None, PNG), "/nothing", "404"),
]

SOCKET = "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"
PROTOCOL = [
    get("a websocket", "400", "/", "Upgrade: websocket", *SOCKET),
    get("a websocket of ours", "400", "/match", "Upgrade: websocket", "Origin: " + ME, *SOCKET),
    get("another protocol", "400", "/", "Upgrade: h2c", "Connection: Upgrade"),
    raw("HTTP/2", "400 505", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    raw("TLS", "400", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n"),
    raw("no HTTP", "400", b"hello\r\n\r\n"),
    raw("an unknown version", "400 505", b"GET / HTTP/9.9\r\nHost: 127.0.0.1:PORT\r\n\r\n"),
    raw("HTTP/0.9", "400", b"GET /\r\n\r\n"),
    get("a header of 100 KB", "400 431", "/", "X-Long: " + "x" * 100_000),
    get("a question of 100 KB", "400 431", "/?" + "x" * 100_000),
    get("5,000 headers", "400 431", "/", *[f"X-{k}: {k}" for k in range(5000)]),
    get("a header without end", "400 431", "/", "X-Long: " + "x" * 1_000_000),
    get("a space before the colon", "400", "/", "X-Odd : 1"),
    get("a header over two lines", "403 400", "/", " evil.example", host="127.0.0.1:{port}"),
    get("a null byte in a header", "400", "/", "X-Odd: \0"),
    raw("a second request inside", "403", b"GET / HTTP/1.1\r\nHost: evil\r\n\r\nGET / HTTP/1.1\r\nHost: evil\r\n\r\n"),
]

ATTACKS = [*HOSTS, *ORIGINS, *LENGTHS, *PATHS, *METHODS, *PROTOCOL]
