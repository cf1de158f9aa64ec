[counts]
SELECT schemaname, relname, ARRAY[n_tup_ins, n_tup_upd, n_tup_del] FROM pg_catalog.pg_stat_xact_all_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')
    AND schemaname NOT LIKE 'pg\_temp%' AND schemaname NOT LIKE 'pg\_toast%'

[scans]
SELECT schemaname, relname, COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0)
FROM pg_catalog.pg_stat_xact_user_tables WHERE COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0) > 0

[files]
SELECT c.oid, n.nspname, c.relname, pg_catalog.pg_relation_filenode(c.oid),
    c.oid IN (SELECT relation FROM pg_catalog.pg_locks WHERE relation IS NOT NULL AND granted
        AND pid = pg_catalog.pg_backend_pid() AND mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock'))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema')

[sequences]
SELECT schemaname, sequencename, COALESCE(last_value, start_value - increment_by)
FROM pg_catalog.pg_sequences WHERE schemaname NOT LIKE 'pg\_temp%'

[recorder]
CREATE TEMPORARY TABLE autoclave_images (place int, sign int, key text COLLATE "C", image text COLLATE "C")
    ON COMMIT DROP;
CREATE FUNCTION pg_temp.autoclave_hear() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off
{settings} AS $autoclave$
DECLARE went bigint := 0; came bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        EXECUTE TG_ARGV[1]; GET DIAGNOSTICS went = ROW_COUNT;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        EXECUTE TG_ARGV[2]; GET DIAGNOSTICS came = ROW_COUNT;
    END IF;
    IF greatest(went, came) > TG_ARGV[0]::bigint THEN
        RAISE EXCEPTION USING ERRCODE = '{too_many}', MESSAGE = 'too many rows';
    END IF;
    RETURN NULL;
END $autoclave$;
REVOKE ALL ON FUNCTION pg_temp.autoclave_hear() FROM PUBLIC

[triggers]
SELECT t.oid, t.ctid::text FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE p.pronamespace = pg_catalog.pg_my_temp_schema() ORDER BY 1

[doubtful constraints]
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = ANY (%(oids)s) AND NOT convalidated)
OR EXISTS (SELECT FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_index i ON i.indrelid = k.confrelid
    WHERE k.confrelid = ANY (%(exchanged)s) AND 'r' IN (k.confdeltype, k.confupdtype)
    AND (i.indisunique OR i.indisexclusion) AND NOT i.indisprimary)

[rights of the role]
SELECT r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolreplication OR r.rolname = current_user,
    pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER'),
    pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database(), 'TEMPORARY')
FROM pg_catalog.pg_roles r WHERE r.rolname = %(role)s

[function of the role]
CREATE OR REPLACE FUNCTION pg_temp.autoclave_role(statement pg_catalog.text) RETURNS pg_catalog.void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = {path} SET row_security = on AS $autoclave$
BEGIN EXECUTE statement; END $autoclave$
