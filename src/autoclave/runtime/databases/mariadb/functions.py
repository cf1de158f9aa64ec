"""Which functions statements may call: those of MariaDB's own that do nothing but give a value. Pure.

A function of somebody's own may write anywhere, and nobody would see it: it is in none of these lists.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


CLOCKS = words(
    """
    now current_timestamp current_date current_time localtime localtimestamp curdate curtime utc_date utc_time
    utc_timestamp unix_timestamp
    """
)
"""Their clock stands still in a transaction of ours, and is another the next time."""
NONDETERMINISTIC = words("rand uuid uuid_short sys_guid sysdate random_bytes connection_id last_insert_id")
"""Each call may give another value."""
DETERMINISTIC = words(
    """
    abs acos asin atan atan2 ceil ceiling conv cos cot crc32 crc32c degrees exp floor greatest least ln log
    log10 log2 mod oct pi pow power radians round sign sin sqrt tan truncate bit_count

    ascii bin char char_length character_length chr concat concat_ws elt export_set field find_in_set format
    from_base64 hex insert instr lcase left length lengthb locate lower lpad ltrim make_set mid natural_sort_key
    octet_length ord position quote repeat replace reverse right rpad rtrim sformat soundex space strcmp substr
    substring substring_index to_base64 trim ucase unhex upper weight_string regexp_instr regexp_replace
    regexp_substr md5 sha sha1 sha2 compress uncompress uncompressed_length

    binary cast coalesce convert if ifnull interval isnull nullif nvl nvl2 decode decode_oracle default values
    value inet_aton inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv6 case collation charset coercibility

    adddate addtime convert_tz date date_add date_format date_sub datediff day dayname dayofmonth dayofweek
    dayofyear extract from_days from_unixtime get_format hour last_day makedate maketime microsecond minute
    month monthname period_add period_diff quarter sec_to_time second str_to_date subdate subtime time
    time_format time_to_sec timediff timestamp timestampadd timestampdiff to_char to_days to_seconds week
    weekday weekofyear year yearweek add_months

    avg bit_and bit_or bit_xor count group_concat max min std stddev stddev_pop stddev_samp sum var_pop var_samp
    variance json_arrayagg json_objectagg cume_dist dense_rank first_value lag last_value lead median nth_value
    ntile percent_rank percentile_cont percentile_disc rank row_number

    json_array json_array_append json_array_insert json_compact json_contains json_contains_path json_depth
    json_detailed json_equals json_exists json_extract json_insert json_keys json_length json_loose json_merge
    json_merge_patch json_merge_preserve json_normalize json_object json_pretty json_query json_quote
    json_remove json_replace json_search json_set json_type json_unquote json_valid json_value json_table

    point linestring polygon multipoint multilinestring multipolygon geometrycollection st_area st_asbinary
    st_asgeojson st_astext st_aswkb st_aswkt st_contains st_distance st_equals st_geomfromtext st_geomfromwkb
    st_intersects st_pointfromtext st_srid st_within st_x st_y
    """
)
"""They give the same for the same rows: numbers, texts, choices, times, aggregates, JSON, shapes."""
WORDS = words(
    """
    all and any as between by div distinct else end exists from having in into is join like mod not on or order
    over partition regexp rlike returning select set some sounds table then union except intersect using values
    value when where with xor key index unique decimal dec numeric char varchar nchar binary varbinary datetime
    time timestamp double float ignore update duplicate limit offset separator recursive escape collate group
    straight_join within columns path nested
    """
)
"""After which a bracket opens without any call."""
