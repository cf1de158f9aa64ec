WITH RECURSIVE used (class, oid, rule) AS (
    SELECT refclassid, refobjid, 0::pg_catalog.oid FROM pg_catalog.pg_depend d WHERE {which}
    UNION SELECT d.refclassid, d.refobjid, r.oid FROM used u JOIN pg_catalog.pg_rewrite r ON r.ev_class = u.oid
        AND u.class = 'pg_catalog.pg_class'::pg_catalog.regclass
        JOIN pg_catalog.pg_depend d ON d.objid = r.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
), trees (tree) AS (
    SELECT prosqlbody::pg_catalog.text FROM pg_catalog.pg_proc
    WHERE oid = pg_catalog.to_regprocedure(%(function)s)::pg_catalog.oid
    UNION ALL SELECT ev_action::pg_catalog.text FROM pg_catalog.pg_rewrite WHERE oid IN (SELECT rule FROM used)
), called (oid) AS (
    SELECT (found)[1]::pg_catalog.oid FROM trees, pg_catalog.regexp_matches(
        tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g') found
    UNION SELECT COALESCE(o.oprcode::pg_catalog.oid, u.oid) FROM used u LEFT JOIN pg_catalog.pg_operator o
        ON o.oid = u.oid AND u.class = 'pg_catalog.pg_operator'::pg_catalog.regclass
    WHERE o.oid IS NOT NULL OR u.class = 'pg_catalog.pg_proc'::pg_catalog.regclass
    UNION SELECT oid FROM pg_catalog.pg_proc WHERE proname = ANY (%(names)s)
)
SELECT n.nspname, p.proname, p.provolatile <> 'v', n.nspname = 'pg_catalog' OR EXISTS (
    SELECT FROM pg_catalog.pg_depend e WHERE e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
    AND e.objid = p.oid AND e.deptype = 'e')
FROM called JOIN pg_catalog.pg_proc p USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname NOT LIKE 'pg\_temp%%' ORDER BY 1, 2
