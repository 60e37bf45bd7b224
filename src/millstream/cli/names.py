"""Arguments that name a topic, an application, a store or a task, and the names that a shell offers for them.

They are looked up in the log or in the state directory that the rest of the line says. Whatever goes wrong
there, a shell is offered nothing: the command itself will say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from millstream.commit.application_storage import ApplicationStorage, application_ids
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.log import FileLog
from millstream.state.local.directory import StateDirectory

Decorator = Callable[[Any], Any]
Lookup = Callable[[dict[str, Any]], Iterable[str]]


def topic_argument(name: str = "topic", **given: Any) -> Decorator:
    """An argument that names a topic which is there; changelogs are not offered."""
    return click.argument(name, shell_complete=offer_topics, **given)


def application_argument(**given: Any) -> Decorator:
    """``APP_ID``: an application of the log, or one that has state on this host."""
    return click.argument("app_id", shell_complete=_offering(_applications), **given)


def store_argument(command: Any) -> Any:
    """``STORE``: a store of the application that was named before."""
    return click.argument("store", shell_complete=_offering(_stores))(command)


def task_argument(command: Any) -> Any:
    """``TASK``: a task of the application that was named before, with state on this host."""
    return click.argument("task", shell_complete=_offering(_tasks))(command)


def program_argument(command: Any) -> Any:
    """``PROGRAM``: a file does as well as a module's name, and a shell knows files."""

    def complete(_context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
        return [CompletionItem(begun, type="file")]

    return click.argument("program", metavar="PROGRAM", shell_complete=complete)(command)


def _offering(lookup: Lookup) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers: the names that are found and begin as what was typed."""

    def complete(context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
        with suppress(Exception):
            taken = context.params.get("names") or ()
            found = [name for name in lookup(context.params) if name not in taken]
            return [CompletionItem(name) for name in found if name.startswith(begun)]
        return []

    return complete


def _topics(given: dict[str, Any]) -> list[str]:
    log: FileLog = given["log"]
    return [name for name in log.topics() if owner_of_changelog(name, log) is None]


offer_topics = _offering(_topics)
"""For options that name a topic."""


def _applications(given: dict[str, Any]) -> list[str]:
    if given.get("log") is not None:
        return application_ids(given["log"].root)
    directory: StateDirectory = given["directory"]
    return directory.applications()


def _stores(given: dict[str, Any]) -> list[str]:
    head = ManifestChain(ApplicationStorage(given["log"].root, given["app_id"])).latest()
    return [] if head is None else sorted(store["name"] for store in committed_stores(head))


def _tasks(given: dict[str, Any]) -> list[str]:
    directory: StateDirectory = given["directory"]
    return directory.tasks(given["app_id"])


def committed_stores(head: Manifest) -> list[dict[str, Any]]:
    """What a commit says of the stores of an application."""
    return [store for sub in head.plan["subtopologies"] for store in sub["stores"]]


def owner_of_changelog(topic: str, log: FileLog) -> str | None:
    """The application that has a topic for one of its stores, if there is one."""
    if not topic.endswith("-changelog"):
        return None
    return next((name for name in application_ids(log.root) if topic.startswith(f"{name}-")), None)
