CREATE TABLE records (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL,
    previous BLOB NOT NULL, digest BLOB NOT NULL
)

CREATE INDEX records_of_subject ON records (subject, number)

CREATE INDEX records_of_kind ON records (kind, number)

CREATE TRIGGER no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are never changed'); END

CREATE TRIGGER no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are never removed'); END

CREATE TABLE actions (
    action TEXT PRIMARY KEY, state TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    weight REAL NOT NULL, is_irreversible INTEGER NOT NULL, is_left_open INTEGER NOT NULL, kept_bytes INTEGER
)

CREATE INDEX actions_by_state ON actions (state, first)

CREATE INDEX actions_by_weight ON actions (state, weight, is_irreversible, action)

CREATE INDEX actions_kept ON actions (state, last, kept_bytes) WHERE kept_bytes IS NOT NULL

CREATE INDEX actions_left_open ON actions (last) WHERE is_left_open

CREATE TABLE touched (key TEXT, action TEXT, PRIMARY KEY (key, action)) WITHOUT ROWID

CREATE INDEX touched_by_action ON touched (action)

CREATE TABLE marks (mark TEXT, number INTEGER, PRIMARY KEY (mark, number)) WITHOUT ROWID

CREATE TRIGGER follow AFTER INSERT ON records WHEN NEW.kind IN ({named}) BEGIN
    INSERT INTO actions VALUES (
        NEW.subject, NEW.kind, NEW.number, NEW.number, CAST(COALESCE(json_extract(NEW.body, '$.weight'), 0) AS REAL),
        json_extract(NEW.body, '$.guarantee') IS 'none', json_extract(NEW.body, '$.left_open') IS 1, 0
    )
    ON CONFLICT (action) DO UPDATE
    SET state = excluded.state, last = IIF(excluded.state IN ({tried}), last, excluded.last);
    DELETE FROM touched WHERE action = NEW.subject AND NEW.kind IN ({with_receipt}, {over});
    INSERT INTO touched SELECT value, NEW.subject FROM (
        SELECT '' AS value UNION SELECT value FROM json_each(NEW.body, '$.reads')
        UNION SELECT value FROM json_each(NEW.body, '$.writes')
    ) WHERE NEW.kind IN ({with_receipt});
    INSERT OR IGNORE INTO marks SELECT value, NEW.number FROM json_each(NEW.body, '$.marks')
    WHERE NEW.kind IN ({with_receipt});
END

CREATE VIEW expected AS SELECT
    oldest.subject, newest.kind, first, last, CAST(COALESCE(json_extract(json, '$.weight'), 0) AS REAL),
    json_extract(json, '$.guarantee') IS 'none', json_extract(json, '$.left_open') IS 1
FROM (
    SELECT MIN(number) AS first, MAX(number) AS latest, MAX(IIF(kind IN ({tried}), 0, number)) AS last
    FROM records WHERE kind IN ({named}) GROUP BY subject
) JOIN (
    SELECT number, subject, IIF(json_valid(body), body, '{{}}') AS json FROM records  -- which may have been altered
) AS oldest
ON oldest.number = first JOIN records AS newest ON newest.number = latest
