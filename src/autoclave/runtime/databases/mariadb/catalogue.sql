[tables]
SELECT table_schema, table_name, table_type, engine
    FROM information_schema.tables
    WHERE table_schema IN {schemas} ORDER BY 1, 2

[columns]
SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, character_set_name, collation_name, column_default, extra, generation_expression
    FROM information_schema.columns
    WHERE table_schema IN {schemas} ORDER BY table_schema, table_name, ordinal_position

[indexes]
SELECT table_schema, table_name, index_name, column_name
    FROM information_schema.statistics
    WHERE table_schema IN {schemas} AND non_unique = 0 ORDER BY 1, 2, 3, seq_in_index

[triggers]
SELECT event_object_schema, event_object_table, trigger_name
    FROM information_schema.triggers
    WHERE event_object_schema IN {schemas} ORDER BY 1, 2
