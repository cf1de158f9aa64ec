"""`autoclave act serve`."""

from pathlib import Path

import click

from autoclave.cli.act.common import on_folder, opened, recorded


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port on 127.0.0.1.")
@on_folder
def serve(port: int, root: Path, state: Path | None, name: str) -> None:
    """Serve a page to review what was done, and to undo, redo, commit and resolve it, until Ctrl-C.

    Only this machine can connect, with the URL that is printed; it has a new token for each start. Works beside a
    running session.

    \b
    Example: autoclave act serve --root project
    """
    from autoclave.review.app import Place
    from autoclave.review.server import ReviewServer

    with recorded(root, state, name):  # mistakes show now, not in the browser
        pass
    server = ReviewServer(Place(root, state, lambda: opened(root, state, name)), port)
    server.serve_until_signal(lambda url: click.echo(f"Review page: {url}"))
