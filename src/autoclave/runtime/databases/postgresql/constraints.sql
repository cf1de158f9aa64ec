SELECT k.conrelid, k.contype::text, k.conname, k.confrelid,
    k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'), k.confdeltype = 'c', k.condeferrable,
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.conkey) WITH ORDINALITY u (n, i)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.confkey) WITH ORDINALITY u (n, i)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.i)
FROM pg_catalog.pg_constraint k WHERE k.conrelid = ANY (%s) AND k.contype IN ('p', 'u', 'f') AND k.conparentid = 0
