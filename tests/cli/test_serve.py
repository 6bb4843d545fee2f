import socket

import pytest

from tokenselect.cli.main import main
from tokenselect.cli.serve import address_of, listen

pytest.importorskip("uvicorn", reason="the web tests need uvicorn (pip install uvicorn)")


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_port_0_takes_a_free_one_and_tells_it(host, shown):
    with listen(host, 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert address_of(listener, host) == f"http://{shown}:{port}/"


def test_a_port_in_use_is_refused_with_what_to_do(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit):
        main(["serve", "--port", str(taken.getsockname()[1])])
    assert "--port 0 takes a free one" in capsys.readouterr().err


def test_it_serves_until_it_is_told_to_stop(monkeypatch, capsys):
    import uvicorn

    served = []
    opened = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: served.extend(sockets))
    monkeypatch.setattr("webbrowser.open", opened.append)
    main(["serve", "--port", "0", "--open"])
    (listener,) = served
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    listener.close()
    assert opened == [address]
    assert capsys.readouterr().out == f"tokenselect serves {address} (Ctrl+C ends it)\n"
