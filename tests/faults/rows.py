"""The faults, as a table: what goes wrong, what a caller must see, and the test that provokes it.

One row per fault; the numbers are what tests and the generated page call them by. A check proves that every row has
a test that exists; `python -m tests.faults.page` writes the table as documentation.

Words: **reused** the connection serves another request; **retry** another attempt is made while attempts are left
and nothing was told (`safe`: nothing of the request was sent, or nothing of it can have been looked at).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One fault. reuse, retry: `yes`, `no`, `safe`, or where it depends. tests: `file::function`, from tests/."""

    number: int
    fault: str
    outcome: str
    reuse: str
    retry: str
    tests: tuple[str, ...]


def _row(number: int, fault: str, outcome: str, reuse: str, retry: str, *tests: str) -> Row:
    return Row(number, fault, outcome, reuse, retry, tests)


KEEP_ALIVE = "faults/test_keep_alive.py::test_"
FRAMING = "faults/test_framing.py::test_"
REQUEST = "faults/test_request_side.py::test_"
CONNECT = "faults/test_connect.py::test_"
TLS = "faults/test_tls.py::test_"
BODY = "faults/test_body.py::test_"
TORTURE = "faults/test_torture.py::test_"
FLOODS = "faults/test_floods.py::test_"
LIFETIME = "engine/test_lifetime.py::test_"
RETRY = "engine/test_retry.py::test_"
DEFECTS = "faults/test_defects.py::test_"
FATAL = "engine/test_fatal_callbacks.py::test_"
STARTING = "engine/test_starting.py::test_"
PRESSURE = "faults/test_pressure.py::test_"
PROVIDERS = "providers/"
RESPONSES = "providers/openai_responses/test_repeated_items.py::test_"
WRONG_PLACE = "faults/test_wrong_place.py::test_"
BATCH = "manystream/batch/test_batch_faults.py::test_"
LONG_LINES = "manystream/batch/test_long_lines.py::test_"
STORE = "manystream/test_store_faults.py::test_"
FILES = "engine/test_private_files.py::test_"

GROUPS: dict[str, tuple[Row, ...]] = {
    "Kept-alive connections": (
        _row(1, "the server closes an idle connection", "not seen: a fresh connection is opened", "no", "not needed",
             KEEP_ALIVE + "a_connection_that_ended_while_idle_is_not_used"),
        _row(2, "the server closes just as the next request goes out",
             "not seen: no byte came on a connection that had served, and its end was under way when the request was "
             "written, so the request goes out once more on a fresh one",
             "no", "safe, once, counted (`resent`); not without an attempt left",
             KEEP_ALIVE + "an_end_that_races_with_the_next_request_is_not_seen",
             KEEP_ALIVE + "a_stale_connection_takes_its_request_along_and_is_replaced_once",
             KEEP_ALIVE + "waiting_calls_get_a_fresh_connection_after_a_stale_one",
             KEEP_ALIVE + "one_completion_for_each_call_of_a_storm_of_stale_connections",
             RETRY + "a_stale_connection_is_replaced_at_once_and_counted",
             RETRY + "a_request_that_the_server_may_have_read_is_not_sent_again_unasked"),
        _row(3, "the same, after a byte of the answer", "NETWORK, phase head", "no", "yes",
             KEEP_ALIVE + "one_byte_of_an_answer_is_no_stale_connection"),
        _row(4, "a fresh connection is closed without a byte", "NETWORK, phase head", "no", "yes",
             KEEP_ALIVE + "a_fresh_connection_without_a_byte_is_an_error"),
        _row(5, "a restart kills every idle connection at once", "not seen: each is dropped once", "no", "not needed",
             KEEP_ALIVE + "a_restart_that_kills_every_idle_connection_is_not_seen"),
        _row(6, "`Keep-Alive` is promised and the connection closed", "not seen", "no", "not needed",
             KEEP_ALIVE + "a_keep_alive_header_is_no_promise"),
        _row(7, "a second response behind the first", "success; the second answers nobody", "no", "-",
             KEEP_ALIVE + "a_second_response_behind_the_first_answers_nobody",
             KEEP_ALIVE + "a_second_response_in_a_tls_record_of_its_own_answers_nobody"),
        _row(8, "bytes on an idle connection", "not seen: the connection is closed", "no", "-",
             KEEP_ALIVE + "bytes_on_an_idle_connection_end_it"),
        _row(9, "`Connection: close`, in any spelling", "success", "no", "-",
             KEEP_ALIVE + "connection_close_is_obeyed"),
        _row(10, "HTTP/1.0, with and without keep-alive", "success", "no", "-",
             KEEP_ALIVE + "http_1_0_is_read_and_not_kept"),
        _row(11, "the caller leaves the stream after an event", "CANCELLED; the socket closes at once", "no", "no",
             KEEP_ALIVE + "an_abandoned_stream_closes_its_socket"),
        _row(12, "the last chunk comes late, after the terminal marker",
             "success at the marker; the rest is drained, 2 s and 64 KiB at most", "yes, if it comes", "-",
             KEEP_ALIVE + "the_last_chunk_is_not_waited_for"),
        _row(13, "many rejected answers in a small pool", "success; each leaves its connection usable", "yes", "yes",
             KEEP_ALIVE + "rejected_answers_leave_their_connections_usable"),
        _row(14, "two keys for one host", "each request carries its own", "yes", "-",
             KEEP_ALIVE + "two_keys_share_connections_and_nothing_else"),
    ),
    "Framing": (
        _row(15, "a length longer than the body", "NETWORK (truncated stream), or success where the answer is whole",
             "no", "yes", FRAMING + "a_length_that_does_not_fit"),
        _row(16, "a length shorter than the body", "what the length holds; the rest is nobody's", "no", "-",
             FRAMING + "a_length_that_does_not_fit"),
        _row(17, "chunks that are cut", "NETWORK (truncated stream), or success where the answer is whole", "no", "yes",
             FRAMING + "chunks_that_are_cut"),
        _row(18, "the last chunk is cut", "as 17", "no", "yes", FRAMING + "chunks_that_are_cut"),
        _row(19, "a chunk size that is none", "NETWORK at once", "no", "no", FRAMING + "chunk_sizes"),
        _row(20, "a chunk size beyond 64 bits", "NETWORK at once; nothing is allocated", "no", "no",
             FRAMING + "chunk_sizes", ),
        _row(21, "chunk extensions", "success; above 16 KiB NETWORK", "yes / no", "no", FRAMING + "chunk_sizes"),
        _row(22, "trailers, also forbidden ones", "success; they change nothing", "yes", "-",
             FRAMING + "trailers_change_nothing"),
        _row(23, "a length and chunked at once", "success by the chunks", "no", "-",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(24, "lengths that contradict or are no number", "NETWORK at once", "no", "no",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(25, "transfer codings other than chunked", "NETWORK at once", "no", "no",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(26, "a body that ends with the connection",
             "success where the terminal marker came, else NETWORK (truncated stream)", "no", "yes",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(27, "informational responses", "skipped; more than 1,000 are NETWORK", "yes", "-",
             FRAMING + "informational_responses"),
        _row(28, "101 that nobody asked for", "NETWORK at once", "no", "no", FRAMING + "informational_responses"),
        _row(29, "204, 205, 304, with and without a body", "UNKNOWN, by status, at once", "unless a body is announced",
             "no", FRAMING + "statuses_without_a_body_end_at_once"),
        _row(30, "an answer to HEAD that announces a body", "success at once", "yes", "-",
             FRAMING + "an_answer_to_head_has_no_body"),
        _row(31, "odd status lines, other protocols", "529 and missing reasons are read; the rest is NETWORK, quoted, "
             "with a hint where it is TLS", "yes / no", "by status", FRAMING + "status_lines"),
        _row(32, "odd header lines", "folding and bare LF are read; NUL, CR, empty names are NETWORK", "yes / no", "no",
             FRAMING + "header_lines"),
        _row(33, "enormous heads", "NETWORK beyond 256 KiB or 4,096 lines (informational heads included), "
             "96 KiB in a line, or 64 blanks before a value", "no", "no",
             FRAMING + "header_lines",
             FRAMING + "a_head_that_never_ends_is_refused_at_its_cap"),
        _row(34, "a head that is cut", "NETWORK, phase head", "no", "yes", FRAMING + "header_lines"),
        _row(35, "a compressed body, whole, cut, a bomb", "SERVER: it was not asked for; an error keeps its status",
             "no", "no", FRAMING + "encodings_are_refused", FRAMING + "identity_is_asked_for"),
        _row(36, "an unknown content coding", "SERVER", "no", "no", FRAMING + "encodings_are_refused"),
    ),
    "The request": (
        _row(37, "a line break in a key or header", "InvalidRequestError before connecting, value not shown", "-", "no",
             REQUEST + "a_key_that_is_no_header_value_is_refused_unseen",
             REQUEST + "a_header_that_breaks_its_line_is_refused"),
        _row(38, "a key that is not ASCII", "InvalidRequestError before connecting", "-", "no",
             REQUEST + "a_key_that_is_no_header_value_is_refused_unseen"),
        _row(39, "a URL with spaces, line breaks, a password, a fragment", "InvalidRequestError when the engine opens; "
             "what can be encoded is", "-", "no", REQUEST + "a_url_that_cannot_be_used_is_refused_unseen",
             REQUEST + "what_a_url_needs_encoded_is_encoded"),
        _row(40, "an early 413, 401 or 429; the server reads no more", "that status at once; sending stops", "no",
             "by status", REQUEST + "an_early_answer_is_told_at_once",
             REQUEST + "an_early_answer_is_told_at_once_over_tls",
             REQUEST + "an_early_answer_s_body_may_come_slowly",
             REQUEST + "an_early_answer_is_told_at_once_on_a_connection_that_has_served",
             REQUEST + "a_large_body_is_sent_while_a_larger_answer_is_read",
             REQUEST + "a_large_body_and_an_answer_go_hand_in_hand"),
        _row(41, "an early answer and a reset behind it", "that status", "no", "by status",
             REQUEST + "an_early_answer_survives_the_reset_behind_it"),
        _row(42, "a reset without an answer", "NETWORK", "no", "yes", REQUEST + "a_reset_without_an_answer"),
        _row(43, "a server that never reads", "TIMEOUT of the idle clock; can be cancelled", "no", "yes",
             REQUEST + "a_server_that_never_reads"),
        _row(44, "`Expect`", "never sent; 417 is a status like any other", "yes", "no",
             REQUEST + "a_417_is_a_status_like_any_other", FRAMING + "identity_is_asked_for"),
        _row(45, "redirects, to anywhere", "an error that names the target; nothing is sent there", "yes", "no",
             REQUEST + "redirects_are_named_and_not_followed",
             REQUEST + "a_location_that_breaks_its_line_breaks_nothing"),
        _row(46, "`Retry-After` in every shape", "waited for, up to 120 s; what is no hint is ignored", "yes", "yes",
             REQUEST + "a_hint_is_waited_for_or_ignored_and_never_trusted_blindly", REQUEST + "a_date_is_waited_for",
             "faults/test_retries.py::test_category_by_delivery_by_hint"),
    ),
    "The way there": (
        _row(47, "connection refused", "NETWORK, phase connect, at once", "-", "safe",
             CONNECT + "a_refused_connection"),
        _row(48, "a black hole", "TIMEOUT of the connect clock", "-", "safe", CONNECT + "a_black_hole"),
        _row(49, "the first address is dead", "success over the second within 0.25 s", "yes", "-",
             CONNECT + "a_dead_first_address_is_passed_by"),
        _row(50, "every address is dead", "one NETWORK error that lists each with its reason", "-", "safe",
             CONNECT + "when_all_addresses_fail_each_is_named"),
        _row(51, "a lookup that fails or hangs", "NETWORK, phase dns; hanging is on the connect clock", "-",
             "safe, but not for names that do not exist", CONNECT + "a_lookup_that_fails",
             CONNECT + "a_slow_lookup_is_on_the_connect_clock_and_can_be_cancelled"),
        _row(52, "no file descriptor left", "NETWORK that says so, for the excess alone", "-", "safe",
             CONNECT + "without_descriptors_the_excess_is_told_so_and_the_rest_is_unharmed",
             CONNECT + "a_tls_context_is_not_made_while_no_file_can_be_read"),
        _row(53, "a thousand calls at once", "connections stay below the cap; first come, first served", "yes", "-",
             CONNECT + "a_storm_stays_below_the_cap",
             CONNECT + "a_call_that_waits_too_long_in_the_queue_is_on_the_total_clock"),
        _row(54, "many short connections; no local port left", "no leak; NETWORK that says so", "-", "safe",
             CONNECT + "many_short_connections_leak_nothing",
             CONNECT + "without_local_ports_the_error_says_so"),
        _row(55, "a proxy that refuses, hangs, resets, talks nonsense", "NETWORK or TIMEOUT that names the proxy; each "
             "secret goes to its own", "-", "safe, but not for refusals",
             CONNECT + "through_a_proxy_tls_is_with_the_origin_and_each_secret_goes_to_its_own",
             CONNECT + "what_a_proxy_may_do_wrong", CONNECT + "a_proxy_that_hangs_is_on_the_connect_clock",
             CONNECT + "a_tunnel_that_is_reset_is_the_proxy_s_fault"),
        _row(56, "proxies in the environment", "used, with their exceptions, as documented", "-", "-",
             CONNECT + "the_environment_s_proxy_is_used_or_not_as_documented"),
    ),
    "TLS": (
        _row(57, "an unknown authority", "NETWORK, phase tls; no byte of the request is sent", "-", "no",
             TLS + "an_unknown_authority"),
        _row(58, "a certificate for someone else, or out of its time", "as 57", "-", "no",
             TLS + "a_certificate_for_someone_else", TLS + "a_certificate_out_of_its_time"),
        _row(59, "the name told, the protocol offered", "names without a final dot, no addresses; http/1.1 only", "-",
             "no", TLS + "names_are_told_and_addresses_are_not", TLS + "only_http_1_1_is_offered"),
        _row(60, "plain HTTP on the TLS port, and the reverse", "NETWORK with a hint", "-", "no",
             TLS + "plain_http_on_the_tls_port", TLS + "tls_on_the_plain_port"),
        _row(61, "a handshake that stalls", "TIMEOUT of the connect clock", "-", "safe",
             TLS + "a_handshake_that_stalls_is_on_the_connect_clock"),
        _row(62, "TCP ends and TLS has not", "success where the answer is whole, else NETWORK (truncated stream)", "no",
             "yes", TLS + "an_end_without_goodbye_is_an_end_and_no_proof_of_one",
             TLS + "an_unstreamed_answer_that_is_cut_is_never_taken_for_whole"),
        _row(63, "records cut in every way", "success", "yes", "-", TLS + "however_records_are_cut_all_bytes_come"),
    ),
    "The body": (
        _row(64, "a reset in the middle", "NETWORK (truncated stream) after all that came", "no", "yes",
             BODY + "a_reset_in_the_middle_keeps_what_came"),
        _row(65, "a whole answer, then a reset", "success", "no", "-",
             BODY + "a_whole_answer_survives_the_reset_behind_it"),
        _row(66, "a body that ends well, its terminal marker missing", "NETWORK (truncated stream), in every dialect",
             "yes", "yes", BODY + "a_body_that_ends_well_without_its_terminal_marker_is_truncated"),
        _row(67, "silence", "TIMEOUT of the idle clock, which any byte restarts", "no", "yes",
             BODY + "silence_is_on_the_idle_clock"),
        _row(68, "nothing but pings", "TIMEOUT of the total clock, where one is set", "no", "no",
             BODY + "pings_alone_end_on_the_total_clock"),
        _row(69, "a slow first byte", "TIMEOUT of the first-byte clock", "no", "yes",
             BODY + "a_slow_first_byte_has_its_own_clock"),
        _row(70, "one byte at a time", "success, the same events", "yes", "-",
             BODY + "dribbled_bytes_give_the_same_events"),
        _row(71, "twenty thousand events in one write", "success, piece by piece, memory bounded", "yes", "-",
             BODY + "twenty_thousand_events_in_one_write_come_piece_by_piece"),
        _row(72, "a slow consumer and a flood", "the server is held back; the idle clock stands still; all is capped",
             "yes", "-", BODY + "a_slow_consumer_holds_a_flood_back",
             BODY + "a_flood_beyond_the_cap_is_a_clear_error",
             FLOODS + "a_slow_consumer_costs_what_waits_for_it_and_holds_back_nobody_else",
             FLOODS + "fifty_megabytes_of_anything_cost_a_bounded_amount"),
        _row(73, "cancelled at any step; any system call fails", "one completion, nothing left, the next call is fine",
             "no", "no", TORTURE + "a_call_cancelled_at_any_step_completes_once",
             TORTURE + "a_waiting_task_cancelled_at_any_step_takes_its_call_along",
             TORTURE + "every_kind_of_call_may_be_cancelled_at_any_step",
             TORTURE + "an_engine_closed_at_any_step_completes_its_calls_once", TORTURE + "any_system_call_may_fail"),
        _row(74, "the end right behind the head", "NETWORK (truncated stream)", "no", "yes",
             BODY + "an_end_right_behind_the_head_is_truncated", BODY + "a_half_close_is_an_end"),
        _row(75, "a page or JSON instead of a stream; an error as a stream", "SERVER with the first bytes; the status, "
             "with the stream's words", "yes", "by status", BODY + "a_page_instead_of_a_stream_is_quoted",
             BODY + "json_without_an_answer_instead_of_a_stream_is_quoted",
             BODY + "an_error_object_instead_of_a_stream_is_that_error",
             FRAMING + "an_error_in_event_stream_form_keeps_its_words"),
        _row(76, "an error event after some deltas", "the deltas, then the error, classified by its type", "yes",
             "only before the first delta", BODY + "an_error_after_some_deltas_is_told_after_them",
             BODY + "an_error_before_any_delta_is_retried", BODY + "an_error_that_none_will_cure_is_not_retried"),
        _row(77, "an event that is no JSON", "SERVER with the event's bytes; not skipped", "no", "no",
             BODY + "an_event_that_is_no_json_ends_the_stream_with_its_words"),
        _row(78, "bytes that are no UTF-8", "success, with U+FFFD", "yes", "-",
             BODY + "bytes_that_are_no_utf8_break_nothing"),
        _row(79, "the system's clock jumps", "not seen: clocks are monotonic", "yes", "-",
             BODY + "the_system_s_clock_may_jump"),
        _row(80, "use after a fork, in a second run, after the end", "EngineClosedError that says so", "-", "-",
             LIFETIME + "use_after_fork_is_a_clear_error", LIFETIME + "use_in_another_run_is_a_clear_error",
             LIFETIME + "use_after_close_is_a_clear_error",
             WRONG_PLACE + "a_fork_is_told_so_and_the_parent_s_streams_go_on",
             WRONG_PLACE + "another_run_is_told_that_the_engine_is_not_its_own",
             WRONG_PLACE + "after_its_block_an_engine_says_so"),
        _row(81, "a defect in this library, wherever it raises", "UNKNOWN (internal error, naming what and where) for "
             "one call at most; its connection closes", "no", "no", DEFECTS + "whatever_raises_ends_one_call_at_most",
             STARTING + "a_start_that_raises_completes_at_the_next_tick",
             STARTING + "wherever_a_start_raises_no_callback_runs_in_it"),
        _row(82, "a callback raises a cancellation by itself (`future.result()` of a cancelled future)",
             "CALLBACK; from `on_completion` it is logged", "no", "no",
             FATAL + "a_cancellation_that_a_callback_raises_is_that_callback_s_failure"),
        _row(83, "a callback raises `KeyboardInterrupt`, `SystemExit` or another `BaseException`; Ctrl-C in a tick",
             "CALLBACK for its call, CANCELLED for all others; the `open_engine` block raises it", "no", "no",
             FATAL + "what_is_meant_for_the_program_ends_the_engine",
             FATAL + "one_of_many_that_end_while_the_engine_closes_raises_and_all_complete",
             FATAL + "ctrl_c_in_the_middle_of_a_tick_leaves_the_block_itself",
             FATAL + "on_asyncio_the_block_s_own_task_raises_it",
             FATAL + "on_a_portal_waiters_are_released_and_the_block_raises_it"),
        _row(84, "no descriptor is left while idle connections hold some",
             "not seen: the oldest idle ones close; without any, NETWORK naming EMFILE", "-", "yes",
             PRESSURE + "idle_connections_make_way_where_no_descriptor_is_left",
             PRESSURE + "without_an_idle_connection_a_missing_descriptor_is_reported"),
        _row(85, "the body of an error answer trickles", "the status' own category, after 5 s, with what came "
             "of the body", "no", "by status", PRESSURE + "the_body_of_an_error_has_a_short_clock_of_its_own"),
        _row(86, "the replicas behind a load balancer change", "connections older than `PoolLimits.max_age` are not "
             "used again", "no", "not needed", PRESSURE + "a_connection_older_than_its_age_limit_serves_no_more"),
        _row(87, "a surrogate pair cut between two deltas",
             "success: the halves are joined; one that stays alone is U+FFFD", "yes", "-",
             PROVIDERS + "test_cut_pairs.py::test_halves_are_joined_or_replaced",
             PROVIDERS + "test_cut_pairs.py::test_any_units_cut_anywhere"),
        _row(88, "an error in another dialect's form, in a stream or as a body",
             "that error, classified, with its words", "yes", "by its code",
             PROVIDERS + "test_foreign_errors.py::test_an_error_in_a_stream_is_read_in_any_form",
             PROVIDERS + "test_foreign_errors.py::test_the_servers_words_are_in_the_error_of_a_failed_answer",
             PROVIDERS + "test_foreign_errors.py::test_a_body_of_no_dialects_form_is_read_alike"),
        _row(89, "a Responses item that comes again under another id; a final text unlike its deltas",
             "success, once, with a warning; the final text is in the response", "yes", "-",
             RESPONSES + "a_message_that_comes_again_under_another_id_is_reported_once",
             RESPONSES + "a_call_that_comes_again_is_one_call",
             RESPONSES + "a_final_text_wins_over_its_deltas_and_the_response_says_so"),
        _row(90, "an answer of very many choices, blocks or tool calls", "SERVER, which names the limit",
             "no", "no", "providers/test_answer_limits.py::test_one_too_many_is_an_error_that_names_the_limit",
             "faults/test_resources.py::test_a_megabyte_of_an_answer_made_of_small_things"),
        _row(91, "one event of thousands of parts", "success; delivered a few at a time, as the consumer takes them",
             "yes", "-", "engine/test_steps.py::test_a_consumer_s_high_water_mark_holds_within_one_event",
             "engine/test_steps.py::test_callbacks_get_all_of_it_and_the_connection_serves_again"),
        _row(92, "answers that are too large together", "SERVER for the largest; the others go on", "no", "no",
             "engine/test_buffered.py::test_the_call_that_keeps_most_fails_and_names_the_limit"),
    ),
    "Batches, stores and recordings": (
        _row(93, "a batch is cancelled, or its engine closed", "its calls are cancelled and waited for; no line fails; "
             "nothing is written afterwards", "no", "in the next run",
             BATCH + "after_a_cancelled_run_no_call_runs_or_is_recorded",
             BATCH + "a_journal_closed_too_early_writes_to_no_file",
             BATCH + "a_closed_engine_fails_no_line"),
        _row(94, "a batch line that cannot be read or sent", "that line fails, by its number; the others are answered",
             "-", "in the next run", BATCH + "a_hostile_line_fails_alone",
             BATCH + "a_defect_that_a_line_triggers_fails_that_line_only",
             LONG_LINES + "an_endless_line_is_refused_in_bounded_memory"),
        _row(95, "an answer that JSON cannot hold", "recorded, with a warning; what cannot be written is replaced",
             "yes", "-", BATCH + "a_hostile_answer_is_recorded",
             BATCH + "values_that_json_cannot_hold_are_replaced"),
        _row(96, "`-o` or `--errors` is the input, or no file of a batch", "JournalError; the file stays as it is", "-",
             "-", BATCH + "an_input_file_is_refused_as_an_output_file",
             BATCH + "answers_and_failures_need_two_files", BATCH + "a_file_of_another_program_keeps_its_last_line",
             BATCH + "a_special_file_is_refused_and_kept"),
        _row(97, "a full disk", "BatchError or StoreError; whole lines and messages stay, and those are counted", "-",
             "in the next run", BATCH + "a_full_disk_ends_the_batch_and_leaves_whole_lines",
             BATCH + "a_full_disk_keeps_superseded_failures",
             STORE + "a_full_disk_is_a_store_error_and_loses_no_message"),
        _row(98, "Ctrl-C during a store's call", "KeyboardInterrupt at once; no lock and no transaction is left", "-",
             "-", STORE + "ctrl_c_at_any_step_leaves_no_lock_and_no_transaction",
             STORE + "ctrl_c_interrupts_the_wait_for_another_writer"),
        _row(99, "a store's file that is damaged or was changed by others", "StoreError or RowError, in bounded time",
             "-", "-", STORE + "a_damaged_file_is_a_store_error",
             STORE + "a_cycle_of_parents_is_a_store_error", STORE + "a_file_with_other_tables_or_triggers_is_refused",
             STORE + "a_value_of_another_type_is_a_store_error"),
        _row(100, "a lone surrogate in what is saved or looked up", "StoreError; the conversation stays as it was", "-",
             "-", STORE + "a_lone_surrogate_is_a_store_error"),
        _row(101, "a recording over an existing file or link", "FileExistsError; the file stays as it is", "-", "-",
             FILES + "a_recording_is_never_written_over_what_is_there",
             FILES + "a_recording_that_replaces_a_link_leaves_its_target_alone"),
    ),
}  # fmt: skip

ROWS: tuple[Row, ...] = tuple(row for rows in GROUPS.values() for row in rows)
COUNT = 101
