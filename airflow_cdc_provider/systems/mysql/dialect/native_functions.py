"""Words in front of a parenthesis that call no function of a user's.

A server looks for a function of its own first, so these names never mean a stored function without
a database in front. Only what both families have, in each version that is supported, is here.
"""

from __future__ import annotations

NATIVE_FUNCTIONS = frozenset(
    """
    abs acos adddate addtime aes_decrypt aes_encrypt ascii asin atan atan2 avg bin bit_and
    bit_count bit_length bit_or bit_xor cast ceil ceiling char character_length charset
    char_length coalesce coercibility collation compress concat concat_ws connection_id conv
    convert convert_tz cos cot count crc32 cume_dist curdate current_date current_time
    current_timestamp current_user curtime database date datediff date_add date_format
    date_sub day dayname dayofmonth dayofweek dayofyear default degrees dense_rank elt exp
    export_set extract extractvalue field find_in_set first_value floor format found_rows
    from_base64 from_days from_unixtime greatest group_concat hex hour if ifnull inet6_aton
    inet6_ntoa inet_aton inet_ntoa insert instr interval isnull json_array json_arrayagg
    json_contains json_depth json_extract json_insert json_keys json_length json_merge_patch
    json_object json_objectagg json_quote json_remove json_replace json_search json_set
    json_type json_unquote json_valid lag last_day last_insert_id last_value
    lcase lead least left length ln localtime localtimestamp locate log log10 log2 lower
    lpad ltrim makedate maketime make_set max microsecond mid min minute mod month monthname
    name_const now nth_value ntile nullif oct octet_length ord percent_rank period_add
    period_diff pi position pow power quarter quote radians rand rank
    regexp_instr regexp_replace regexp_substr repeat replace reverse right round row_count
    row_number rpad rtrim schema second sec_to_time session_user sha2 sign sin sleep soundex
    space sqrt std stddev stddev_pop stddev_samp strcmp str_to_date st_astext
    st_geomfromtext st_x st_y subdate substr substring substring_index subtime sum sysdate
    system_user tan time timediff timestamp timestampadd timestampdiff time_format
    time_to_sec to_base64 to_days to_seconds trim truncate ucase uncompress unhex
    unix_timestamp upper user utc_date utc_time utc_timestamp uuid uuid_short variance
    var_pop var_samp version week weekday weekofyear weight_string year yearweek
    """.upper().split()
)
"""Functions of the servers, in upper case."""

KEYWORDS_BEFORE_PARENTHESES = frozenset(
    """
    all and as between binary by case check collate column cross decimal distinct div double
    else except exists float force from group having ignore in index inner into is
    join key like limit match not numeric on or order over partition primary real recursive
    regexp rlike select set straight_join then union unique unsigned update use using values
    varbinary varchar when where with xor
    """.upper().split()
)
"""Reserved words, which no function may have as its name, in upper case."""
