"""Snapshots: copies of a task's stores on storage that outlives the host, so that a restore is short.

::

    <snapshot_uri>/<app_id>/<task>/<store>/<backend>/
        files/<digest>-<size>            content, named by what it is: shared by all snapshots that have it
        manifests/<version>-<digest>     one per snapshot, written last: what it does not name is not there

A snapshot is of one store, at one committed version of one history. It is never needed: all that it saves is
reading the changelog from its beginning. So whatever is wrong with one is told, and an older one, or the
changelog, takes its place; it never becomes another result.
"""
