"""What a table, an index or a view of PostgreSQL is made of, with all that hangs on it and goes with it. Reads only.

What was created is dropped again only if it is still this: an index, a trigger, a policy, a right or a comment that
somebody else has put on it since would be lost with it.
"""

from __future__ import annotations

from typing import Any

from autoclave.runtime.databases.places import names_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, quoted

_SOURCES = {"index": ("pg_indexes", "indexname", "indexdef"), "view": ("pg_views", "viewname", "definition")}
_HANGING = """
SELECT pg_catalog.md5(pg_catalog.string_agg(kind::text || told, E'\\n' ORDER BY kind, told)) FROM (
    SELECT 'class', pg_catalog.concat_ws(' ', relowner::regrole, relacl, reloptions, relrowsecurity,
        relforcerowsecurity, relreplident) FROM pg_catalog.pg_class WHERE oid = %(oid)s
    UNION ALL SELECT 'column', pg_catalog.concat_ws(' ', attname, attacl, attoptions, attstattarget, attstorage)
        FROM pg_catalog.pg_attribute WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'index', pg_catalog.pg_get_indexdef(indexrelid)
        FROM pg_catalog.pg_index WHERE indrelid = %(oid)s
    UNION ALL SELECT 'constraint', conname || ' ' || pg_catalog.pg_get_constraintdef(oid)
        FROM pg_catalog.pg_constraint WHERE %(oid)s IN (conrelid, confrelid)
    UNION ALL SELECT 'trigger', tgenabled::text || pg_catalog.pg_get_triggerdef(oid)
        FROM pg_catalog.pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal
    UNION ALL SELECT 'rule', ev_enabled::text || pg_catalog.pg_get_ruledef(oid)
        FROM pg_catalog.pg_rewrite WHERE ev_class = %(oid)s
    UNION ALL SELECT 'policy', pg_catalog.concat_ws(' ', polname, polcmd, polpermissive, polroles,
        pg_catalog.pg_get_expr(polqual, polrelid), pg_catalog.pg_get_expr(polwithcheck, polrelid))
        FROM pg_catalog.pg_policy WHERE polrelid = %(oid)s
    UNION ALL SELECT 'statistics', pg_catalog.pg_get_statisticsobjdef(oid)
        FROM pg_catalog.pg_statistic_ext WHERE stxrelid = %(oid)s
    UNION ALL SELECT 'part', inhrelid::regclass::text FROM pg_catalog.pg_inherits WHERE inhparent = %(oid)s
    UNION ALL SELECT 'comment', objsubid || ' ' || description FROM pg_catalog.pg_description
        WHERE objoid = %(oid)s AND classoid = 'pg_catalog.pg_class'::regclass
) hanging (kind, told)
"""


def definition_of(connection: Any, catalogue: Catalogue, kind: str, place: str) -> str:
    """What a table, an index or a view is made of now, in words that are the same as long as it is; empty: none."""
    schema, name = names_of(place)
    if kind == "table":
        table = catalogue.tables.get(place)
        own = table.layout if table else ""
    else:
        source, column, wanted = _SOURCES[kind]
        query = f"SELECT {wanted} FROM pg_catalog.{source} WHERE schemaname = %s AND {column} = %s"
        row = connection.execute(query, (schema, name)).fetchone()
        own = row[0] if row else ""
    if not own:
        return ""
    (oid,) = connection.execute("SELECT %s::pg_catalog.regclass::pg_catalog.oid", (quoted(schema, name),)).fetchone()
    return f"{own} {connection.execute(_HANGING, {'oid': oid}).fetchone()[0]}"
