SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
    CASE WHEN c.relkind = 'f' THEN 'is on another server, and cannot be taken back'
        WHEN c.relkind = 'p' OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))
        THEN 'is partitioned, is a partition or inherits, which is not supported'
        WHEN c.relkind = 'r' AND c.relhasrules THEN 'has rules, which are not supported' ELSE '' END AS refusal,
    ARRAY(SELECT pg_catalog.json_build_array(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.attgenerated, a.attidentity,
            CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END)
        FROM pg_catalog.pg_attribute a
        LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns,
    ARRAY(SELECT pg_catalog.json_build_array(tgname, tgenabled) FROM pg_catalog.pg_trigger
        WHERE tgrelid = c.oid AND NOT tgisinternal ORDER BY tgname) AS triggers
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
