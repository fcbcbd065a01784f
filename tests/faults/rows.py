"""The table of faults: what goes wrong, what the caller must see, and the tests that provoke it.

Each row has a number, which tests and the generated page use. A test checks that each row names tests that exist;
`python -m tests.faults.page` writes the table as documentation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One fault.

    number: the number by which tests and the page refer to the fault.
    fault: what goes wrong.
    outcome: what the caller sees.
    reuse: whether the connection can be reused: `yes`, `no`, or the condition.
    retry: whether the call is retried if attempts are left and no event was delivered: `yes`, `no`, `safe` or the
        condition. `safe`: the server cannot have processed any part of the request.
    tests: the tests that provoke it, as `file::function`, relative to tests/.
    """

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
        _row(1, "the server closes an idle connection", "hidden: a fresh connection is opened", "no", "not needed",
             KEEP_ALIVE + "a_connection_that_ended_while_idle_is_not_used"),
        _row(2, "the server closes just as the next request goes out",
             "hidden: no byte arrived on a reused connection, and the server had closed it before the request arrived, "
             "so the request is sent once more on a fresh connection",
             "no", "safe, once, counted (`resent`); not without an attempt left",
             KEEP_ALIVE + "an_end_that_races_with_the_next_request_is_hidden",
             KEEP_ALIVE + "a_stale_connection_is_replaced_once",
             KEEP_ALIVE + "waiting_calls_get_a_fresh_connection",
             KEEP_ALIVE + "each_call_completes_once_despite_stale_connections",
             RETRY + "a_stale_connection_is_replaced_at_once_and_counted",
             RETRY + "a_request_that_the_server_may_have_read_is_not_sent_again_unasked"),
        _row(3, "the server closes after one byte of the response", "NETWORK, phase head", "no", "yes",
             KEEP_ALIVE + "after_one_byte_a_connection_is_not_stale"),
        _row(4, "a fresh connection is closed without a byte", "NETWORK, phase head", "no", "yes",
             KEEP_ALIVE + "a_fresh_connection_without_a_byte_is_an_error"),
        _row(5, "a restart kills every idle connection at once", "hidden: each is dropped once", "no", "not needed",
             KEEP_ALIVE + "a_restart_that_ends_all_idle_connections_is_hidden"),
        _row(6, "a `Keep-Alive` header, and the server closes earlier", "hidden", "no", "not needed",
             KEEP_ALIVE + "a_keep_alive_header_is_not_relied_upon"),
        _row(7, "a second response after the first", "success; the second is discarded", "no", "-",
             KEEP_ALIVE + "a_second_response_is_discarded",
             KEEP_ALIVE + "a_second_response_in_its_own_tls_record_is_discarded"),
        _row(8, "bytes on an idle connection", "hidden: the connection is closed", "no", "-",
             KEEP_ALIVE + "bytes_on_an_idle_connection_close_it"),
        _row(9, "`Connection: close`, in any spelling", "success", "no", "-",
             KEEP_ALIVE + "connection_close_is_obeyed"),
        _row(10, "HTTP/1.0, with and without keep-alive", "success", "no", "-",
             KEEP_ALIVE + "http_1_0_is_read_and_not_kept_alive"),
        _row(11, "the caller leaves the stream after an event", "CANCELLED; the socket closes at once", "no", "no",
             KEEP_ALIVE + "an_abandoned_stream_closes_its_socket"),
        _row(12, "the last chunk comes late, after the terminal marker",
             "success at the marker; the rest is drained, 2 s and 64 KiB at most", "yes, if it comes", "-",
             KEEP_ALIVE + "the_last_chunk_is_not_waited_for"),
        _row(13, "many error responses in a small pool", "success; each connection stays usable", "yes", "yes",
             KEEP_ALIVE + "rejected_answers_leave_their_connections_usable"),
        _row(14, "two keys for one host", "each request carries its own key", "yes", "-",
             KEEP_ALIVE + "two_keys_share_connections_and_nothing_else"),
    ),
    "Framing": (
        _row(15, "a length longer than the body", "NETWORK (truncated stream), or success if the response is complete",
             "no", "yes", FRAMING + "a_length_that_does_not_fit"),
        _row(16, "a length shorter than the body", "the bytes within the length; the rest is discarded", "no", "-",
             FRAMING + "a_length_that_does_not_fit"),
        _row(17, "chunks that are cut", "NETWORK (truncated stream), or success if the response is complete", "no",
             "yes",
             FRAMING + "chunks_that_are_cut"),
        _row(18, "the last chunk is cut", "as 17", "no", "yes", FRAMING + "chunks_that_are_cut"),
        _row(19, "an invalid chunk size", "NETWORK at once", "no", "no", FRAMING + "chunk_sizes"),
        _row(20, "a chunk size beyond 64 bits", "NETWORK at once; nothing is allocated", "no", "no",
             FRAMING + "chunk_sizes", ),
        _row(21, "chunk extensions", "success; above 16 KiB NETWORK", "yes / no", "no", FRAMING + "chunk_sizes"),
        _row(22, "trailers, also forbidden ones", "success; they have no effect", "yes", "-",
             FRAMING + "trailers_change_nothing"),
        _row(23, "a length and chunked at once", "success by the chunks", "no", "-",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(24, "lengths that contradict each other or are not a number", "NETWORK at once", "no", "no",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(25, "transfer codings other than chunked", "NETWORK at once", "no", "no",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(26, "a body that ends with the connection",
             "success if the terminal marker arrived, else NETWORK (truncated stream)", "no", "yes",
             FRAMING + "what_the_head_says_of_the_body"),
        _row(27, "informational responses", "skipped; more than 1,000 are NETWORK", "yes", "-",
             FRAMING + "informational_responses"),
        _row(28, "a 101 that was not requested", "NETWORK at once", "no", "no", FRAMING + "informational_responses"),
        _row(29, "204, 205, 304, with and without a body", "UNKNOWN, by status, at once", "unless a body is announced",
             "no", FRAMING + "statuses_without_a_body_end_at_once"),
        _row(30, "a response to HEAD that announces a body", "success at once", "yes", "-",
             FRAMING + "a_response_to_head_has_no_body"),
        _row(31, "odd status lines, other protocols", "529 and missing reasons are accepted; the rest is NETWORK, "
             "quoted, with a hint if it is TLS", "yes / no", "by status", FRAMING + "status_lines"),
        _row(32, "odd header lines", "folding and bare LF are accepted; NUL, CR, empty names are NETWORK", "yes / no",
             "no",
             FRAMING + "header_lines"),
        _row(33, "enormous heads", "NETWORK beyond 256 KiB or 4,096 lines (informational heads included), "
             "96 KiB in a line, or 64 blanks before a value", "no", "no",
             FRAMING + "header_lines",
             FRAMING + "a_head_that_never_ends_is_refused_at_its_cap"),
        _row(34, "a head that is cut", "NETWORK, phase head", "no", "yes", FRAMING + "header_lines"),
        _row(35, "a compressed body, whole, cut, a bomb", "SERVER: it was not requested; an error keeps its status",
             "no", "no", FRAMING + "encodings_are_refused", FRAMING + "only_the_identity_coding_is_requested"),
        _row(36, "an unknown content coding", "SERVER", "no", "no", FRAMING + "encodings_are_refused"),
    ),
    "The request": (
        _row(37, "a line break in a key or header", "InvalidRequestError before connecting, value not shown", "-", "no",
             REQUEST + "an_invalid_key_is_refused_and_not_shown",
             REQUEST + "a_header_that_breaks_its_line_is_refused"),
        _row(38, "a key that is not ASCII", "InvalidRequestError before connecting", "-", "no",
             REQUEST + "an_invalid_key_is_refused_and_not_shown"),
        _row(39, "a URL with spaces, line breaks, a password, a fragment", "InvalidRequestError when the engine opens; "
             "other characters are encoded", "-", "no", REQUEST + "an_unusable_url_is_refused_and_not_shown",
             REQUEST + "a_url_is_percent_encoded_where_needed"),
        _row(40, "an early 413, 401 or 429; the server reads no more", "that status at once; sending stops", "no",
             "by status", REQUEST + "an_early_response_is_reported_at_once",
             REQUEST + "an_early_response_over_tls_is_reported_at_once",
             REQUEST + "the_body_of_an_early_response_may_arrive_slowly",
             REQUEST + "an_early_response_on_a_reused_connection_is_reported",
             REQUEST + "a_large_body_is_sent_while_a_larger_response_is_read",
             REQUEST + "a_body_is_sent_and_a_response_read_concurrently"),
        _row(41, "an early response and a reset after it", "that status", "no", "by status",
             REQUEST + "an_early_response_survives_the_reset_after_it"),
        _row(42, "a reset without a response", "NETWORK", "no", "yes", REQUEST + "a_reset_without_a_response"),
        _row(43, "a server that never reads", "TIMEOUT (idle timeout); can be cancelled", "no", "yes",
             REQUEST + "a_server_that_never_reads"),
        _row(44, "`Expect`", "never sent; 417 is a status like any other", "yes", "no",
             REQUEST + "a_417_is_a_status_like_any_other", FRAMING + "only_the_identity_coding_is_requested"),
        _row(45, "redirects, to anywhere", "an error that names the target; nothing is sent there", "yes", "no",
             REQUEST + "redirects_are_reported_and_not_followed",
             REQUEST + "a_location_with_a_line_break_does_no_harm"),
        _row(46, "`Retry-After` in every shape", "followed, up to 120 s; invalid values are ignored", "yes", "yes",
             REQUEST + "a_retry_after_hint_is_followed_within_bounds", REQUEST + "a_retry_after_date_is_followed",
             "faults/test_retries.py::test_retries_by_category_delivery_and_hint"),
    ),
    "The connection": (
        _row(47, "connection refused", "NETWORK, phase connect, at once", "-", "safe",
             CONNECT + "a_refused_connection"),
        _row(48, "a black hole", "TIMEOUT (connect timeout)", "-", "safe", CONNECT + "a_black_hole"),
        _row(49, "the first address is dead", "success through the second within 0.25 s", "yes", "-",
             CONNECT + "a_dead_first_address_is_skipped"),
        _row(50, "every address is dead", "one NETWORK error that lists each with its reason", "-", "safe",
             CONNECT + "when_all_addresses_fail_each_is_named"),
        _row(51, "a lookup that fails or hangs",
             "NETWORK, phase dns; a hanging lookup is covered by the connect timeout", "-",
             "safe, except for names that do not exist", CONNECT + "a_lookup_that_fails",
             CONNECT + "the_connect_timeout_covers_a_slow_lookup"),
        _row(52, "no file descriptor left", "NETWORK with the reason, for the excess calls only", "-", "safe",
             CONNECT + "without_descriptors_only_the_excess_calls_fail",
             CONNECT + "no_tls_context_is_created_without_a_free_descriptor"),
        _row(53, "a thousand calls at once", "connections stay below the cap; first come, first served", "yes", "-",
             CONNECT + "a_thousand_calls_stay_below_the_cap",
             CONNECT + "the_total_timeout_covers_the_wait_in_the_queue"),
        _row(54, "many short connections; no local port left", "no leak; NETWORK with the reason", "-", "safe",
             CONNECT + "many_short_connections_leak_nothing",
             CONNECT + "an_error_reports_that_no_local_port_is_left"),
        _row(55, "a proxy that refuses, hangs, resets, sends garbage", "NETWORK or TIMEOUT that names the proxy; each "
             "secret goes only to its own server", "-", "safe, except for refusals",
             CONNECT + "each_secret_goes_only_to_its_own_server",
             CONNECT + "errors_of_a_proxy_are_reported", CONNECT + "the_connect_timeout_covers_a_proxy_that_hangs",
             CONNECT + "a_tunnel_that_is_reset_is_a_proxy_error"),
        _row(56, "proxies in the environment", "used, with their exceptions, as documented", "-", "-",
             CONNECT + "the_environment_s_proxy_is_used_as_documented"),
    ),
    "TLS": (
        _row(57, "an unknown authority", "NETWORK, phase tls; no byte of the request is sent", "-", "no",
             TLS + "an_unknown_authority"),
        _row(58, "a certificate for another name, expired or not yet valid", "as 57", "-", "no",
             TLS + "a_certificate_for_another_name", TLS + "an_expired_or_future_certificate"),
        _row(59, "the name (SNI) and the protocol (ALPN) sent",
             "names without a final dot, no addresses; http/1.1 only", "-",
             "no", TLS + "names_are_sent_as_sni_and_addresses_are_not", TLS + "only_http_1_1_is_offered"),
        _row(60, "plain HTTP on the TLS port, and the reverse", "NETWORK with a hint", "-", "no",
             TLS + "plain_http_on_the_tls_port", TLS + "tls_on_the_plain_port"),
        _row(61, "a handshake that stalls", "TIMEOUT (connect timeout)", "-", "safe",
             TLS + "the_connect_timeout_covers_a_stalled_handshake"),
        _row(62, "TCP ends without TLS's close_notify",
             "success where the answer is whole, else NETWORK (truncated stream)", "no",
             "yes", TLS + "an_end_without_close_notify_does_not_end_a_body",
             TLS + "a_truncated_unstreamed_response_is_an_error"),
        _row(63, "records cut at any place", "success", "yes", "-", TLS + "records_cut_in_any_way_deliver_all_bytes"),
    ),
    "The body": (
        _row(64, "a reset in the middle", "NETWORK (truncated stream) after all events that arrived", "no", "yes",
             BODY + "a_reset_in_the_middle_keeps_the_events_before_it"),
        _row(65, "a complete response, then a reset", "success", "no", "-",
             BODY + "a_complete_response_survives_the_reset_after_it"),
        _row(66, "a body that ends normally without its terminal marker",
             "NETWORK (truncated stream), in every dialect",
             "yes", "yes", BODY + "a_body_without_its_terminal_marker_is_truncated"),
        _row(67, "silence", "TIMEOUT (idle timeout, which any byte restarts)", "no", "yes",
             BODY + "the_idle_timeout_covers_silence"),
        _row(68, "nothing but pings", "TIMEOUT (total timeout, if one is set)", "no", "no",
             BODY + "the_total_timeout_ends_a_stream_of_pings"),
        _row(69, "a slow first byte", "TIMEOUT (first-byte timeout)", "no", "yes",
             BODY + "a_slow_first_byte_has_its_own_timeout"),
        _row(70, "one byte at a time", "success, the same events", "yes", "-",
             BODY + "single_bytes_deliver_the_same_events"),
        _row(71, "twenty thousand events in one write", "success; delivered in parts, in bounded memory", "yes", "-",
             BODY + "twenty_thousand_events_in_one_write_arrive_in_parts"),
        _row(72, "a slow consumer and a flood",
             "backpressure stops the server; the idle timeout is suspended; all sizes are capped",
             "yes", "-", BODY + "a_slow_consumer_exerts_backpressure",
             BODY + "a_stream_beyond_the_cap_is_a_clear_error",
             FLOODS + "a_slow_consumer_delays_only_its_own_stream",
             FLOODS + "fifty_megabytes_of_anything_use_bounded_memory"),
        _row(73, "cancelled at any step; any system call fails", "one completion, no leak, the next call succeeds",
             "no", "no", TORTURE + "a_call_cancelled_at_any_step_completes_once",
             TORTURE + "a_task_cancelled_at_any_step_cancels_its_call",
             TORTURE + "every_kind_of_call_can_be_cancelled_at_any_step",
             TORTURE + "an_engine_closed_at_any_step_completes_its_calls_once", TORTURE + "any_system_call_may_fail"),
        _row(74, "the end directly after the head", "NETWORK (truncated stream)", "no", "yes",
             BODY + "an_end_directly_after_the_head_is_truncated", BODY + "a_half_close_is_an_end"),
        _row(75, "a page or JSON instead of a stream; an error as a stream", "SERVER with the first bytes; the status, "
             "with the stream's message", "yes", "by status", BODY + "a_page_instead_of_a_stream_is_quoted",
             BODY + "other_json_instead_of_a_stream_is_quoted",
             BODY + "an_error_object_instead_of_a_stream_is_that_error",
             FRAMING + "an_error_sent_as_an_event_stream_keeps_its_text"),
        _row(76, "an error event after some deltas", "the deltas, then the error, classified by its type", "yes",
             "only before the first delta", BODY + "an_error_after_some_deltas_is_reported_after_them",
             BODY + "an_error_before_any_delta_is_retried", BODY + "a_permanent_error_is_not_retried"),
        _row(77, "an event that is not JSON", "SERVER with the event's bytes; not skipped", "no", "no",
             BODY + "an_event_that_is_not_json_ends_the_stream_and_is_quoted"),
        _row(78, "bytes that are not UTF-8", "success, with U+FFFD", "yes", "-",
             BODY + "invalid_utf_8_is_replaced"),
        _row(79, "the system's clock jumps", "hidden: the clocks are monotonic", "yes", "-",
             BODY + "the_system_s_clock_may_jump"),
        _row(80, "use after a fork, in a second run, after the end", "EngineClosedError with the reason", "-", "-",
             LIFETIME + "use_after_fork_is_a_clear_error", LIFETIME + "use_in_another_run_is_a_clear_error",
             LIFETIME + "use_after_close_is_a_clear_error",
             WRONG_PLACE + "use_in_a_fork_is_an_error_and_harms_no_stream",
             WRONG_PLACE + "an_engine_of_another_run_is_an_error",
             WRONG_PLACE + "a_closed_engine_is_an_error"),
        _row(81, "a defect in this library, wherever it raises",
             "UNKNOWN (internal error with exception and place) for "
             "one call at most; its connection closes", "no", "no", DEFECTS + "a_defect_anywhere_ends_one_call_at_most",
             STARTING + "a_start_that_raises_completes_at_the_next_tick",
             STARTING + "wherever_a_start_raises_no_callback_runs_in_it"),
        _row(82, "a callback itself raises a cancellation (`future.result()` of a cancelled future)",
             "CALLBACK; from `on_completion` it is logged", "no", "no",
             FATAL + "a_cancellation_that_a_callback_raises_is_that_callback_s_failure"),
        _row(83, "a callback raises `KeyboardInterrupt`, `SystemExit` or another `BaseException`; Ctrl-C in a tick",
             "CALLBACK for its call, CANCELLED for all others; the `open_engine` block raises it", "no", "no",
             FATAL + "what_is_meant_for_the_program_ends_the_engine",
             FATAL + "one_of_many_that_end_while_the_engine_closes_raises_and_all_complete",
             FATAL + "ctrl_c_in_the_middle_of_a_tick_leaves_the_block_itself",
             FATAL + "on_asyncio_the_block_s_own_task_raises_it",
             FATAL + "on_a_portal_waiters_are_released_and_the_block_raises_it"),
        _row(84, "no descriptor is left while connections are idle",
             "hidden: the oldest idle connections are closed; if there are none, NETWORK with EMFILE", "-", "yes",
             PRESSURE + "idle_connections_are_closed_if_no_descriptor_is_left",
             PRESSURE + "without_idle_connections_exhaustion_is_reported"),
        _row(85, "the body of an error response arrives slowly", "the status' own category, after 5 s, with the "
             "bytes that have arrived", "no", "by status", PRESSURE + "the_body_of_an_error_has_its_own_short_timeout"),
        _row(86, "the replicas behind a load balancer change", "connections older than `PoolLimits.max_age` are not "
             "reused", "no", "not needed", PRESSURE + "a_connection_beyond_its_maximum_age_is_not_reused"),
        _row(87, "a surrogate pair cut between two deltas",
             "success: the halves are joined; a lone half becomes U+FFFD", "yes", "-",
             PROVIDERS + "test_cut_pairs.py::test_halves_are_joined_or_replaced",
             PROVIDERS + "test_cut_pairs.py::test_any_units_cut_anywhere"),
        _row(88, "an error in another dialect's form, in a stream or as a body",
             "that error, classified, with its message", "yes", "by its code",
             PROVIDERS + "test_foreign_errors.py::test_an_error_in_a_stream_is_read_in_any_form",
             PROVIDERS + "test_foreign_errors.py::test_the_servers_words_are_in_the_error_of_a_failed_answer",
             PROVIDERS + "test_foreign_errors.py::test_a_body_of_no_dialects_form_is_read_alike"),
        _row(89, "a Responses item that is repeated under another id; a final text unlike its deltas",
             "success, once, with a warning; the final text is in the response", "yes", "-",
             RESPONSES + "a_message_that_comes_again_under_another_id_is_reported_once",
             RESPONSES + "a_call_that_comes_again_is_one_call",
             RESPONSES + "a_final_text_wins_over_its_deltas_and_the_response_says_so"),
        _row(90, "a response of very many choices, blocks or tool calls", "SERVER, which names the limit",
             "no", "no", "providers/test_answer_limits.py::test_one_too_many_is_an_error_that_names_the_limit",
             "faults/test_resources.py::test_a_megabyte_of_small_parts_costs_a_bounded_amount"),
        _row(91, "one event of thousands of parts", "success; delivered a few at a time, as the consumer reads them",
             "yes", "-", "engine/test_steps.py::test_a_consumer_s_high_water_mark_holds_within_one_event",
             "engine/test_steps.py::test_callbacks_get_all_of_it_and_the_connection_serves_again"),
        _row(92, "responses that are too large together", "SERVER for the largest; the others continue", "no", "no",
             "engine/test_buffered.py::test_the_call_that_keeps_most_fails_and_names_the_limit"),
    ),
    "Batches, stores and recordings": (
        _row(93, "a batch is cancelled, or its engine closed", "its calls are cancelled and awaited; no line fails; "
             "nothing is written afterwards", "no", "in the next run",
             BATCH + "a_cancelled_run_leaves_no_call_and_writes_nothing_afterwards",
             BATCH + "a_journal_that_is_closed_too_early_writes_nowhere",
             BATCH + "an_engine_that_is_closed_fails_no_line"),
        _row(94, "a batch line that cannot be read or sent",
             "that line fails, with its number; the others are processed",
             "-", "in the next run", BATCH + "a_line_of_any_kind_fails_alone_and_its_neighbours_are_answered",
             BATCH + "a_defect_in_reading_or_sending_a_line_is_that_line_s",
             LONG_LINES + "a_line_without_an_end_is_refused_alone_in_bounded_memory"),
        _row(95, "a response that JSON cannot represent", "recorded, with a warning; invalid values are replaced",
             "yes", "-", BATCH + "an_answer_of_any_kind_is_kept_and_ends_no_batch",
             BATCH + "what_json_cannot_hold_is_replaced_and_the_record_says_so"),
        _row(96, "`-o` or `--errors` is the input, or not a file of a batch", "JournalError; the file is unchanged",
             "-",
             "-", BATCH + "an_input_is_never_taken_for_a_file_of_a_batch",
             BATCH + "answers_and_failures_need_two_files", BATCH + "a_file_of_something_else_keeps_its_last_line",
             BATCH + "what_is_no_regular_file_is_refused_and_stays"),
        _row(97, "a full disk", "BatchError or StoreError; complete lines and messages are kept and counted", "-",
             "in the next run", BATCH + "a_full_disk_ends_the_batch_and_only_whole_lines_are_stored_and_counted",
             BATCH + "no_room_to_clean_the_failures_up_loses_none",
             STORE + "a_full_disk_is_a_store_error_and_costs_no_message_that_was_stored"),
        _row(98, "Ctrl-C during a call of a store", "KeyboardInterrupt at once; no lock and no transaction is left",
             "-",
             "-", STORE + "ctrl_c_at_any_step_leaves_no_lock_and_no_transaction",
             STORE + "ctrl_c_ends_the_wait_for_another_writer_at_once"),
        _row(99, "a store's file is damaged or was changed by another program",
             "StoreError or RowError, in bounded time",
             "-", "-", STORE + "a_damaged_file_is_a_store_error_whatever_is_damaged",
             STORE + "a_cycle_of_parents_is_a_store_error", STORE + "a_file_with_other_tables_or_triggers_is_refused",
             STORE + "a_value_of_another_type_is_a_store_error"),
        _row(100, "a lone surrogate in a saved value or a key", "StoreError; the conversation is unchanged", "-",
             "-", STORE + "a_lone_surrogate_is_a_store_error_wherever_it_is"),
        _row(101, "a recording over an existing file or link", "FileExistsError; the file is unchanged", "-", "-",
             FILES + "a_recording_is_never_written_over_what_is_there",
             FILES + "a_recording_that_replaces_a_link_leaves_its_target_alone"),
    ),
}  # fmt: skip

ROWS: tuple[Row, ...] = tuple(row for rows in GROUPS.values() for row in rows)
COUNT = 101
