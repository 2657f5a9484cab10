/*
 * The C interface over UDP on loopback: both ends in one process. Written in what C and C++ have in common.
 *
 * Prints nothing and ends with 0 when all is well; otherwise it says which line failed, and why.
 */
#include "sdr.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAYLOAD 1024u
#define CHUNK_PACKETS 4u
#define CHUNK (PAYLOAD * CHUNK_PACKETS)
#define SECOND 1000000000u

#define CHECK(what) check((what) ? 1 : 0, #what, __LINE__)
#define OK(call) expect((call), SDR_SUCCESS, #call, __LINE__)
#define RETRY(call) expect((call), SDR_RETRY, #call, __LINE__)
#define ERROR(call, has) expect_error((call), (has), #call, __LINE__)

static void fail(const char *what, int line, const char *why) {
    fprintf(stderr, "loopback.c:%d: %s: %s\n", line, what, why);
    exit(1);
}

static void check(int holds, const char *what, int line) {
    if (!holds) {
        fail(what, line, "does not hold");
    }
}

static void expect(sdr_result got, sdr_result wanted, const char *what, int line) {
    if (got != wanted) {
        char why[600];
        snprintf(why, sizeof why, "result %d, not %d (%s)", (int)got, (int)wanted, sdr_last_error());
        fail(what, line, why);
    }
}

/* An error whose text names the call and has `has` in it. */
static void expect_error(sdr_result got, const char *has, const char *what, int line) {
    expect(got, SDR_ERROR, what, line);
    size_t name = strcspn(what, "(");
    if (strncmp(sdr_last_error(), what, name) != 0 || !strstr(sdr_last_error(), has)) {
        fail(what, line, sdr_last_error());
    }
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Both ends, and the client's and the server's side of one queue pair. */
static sdr_context *client, *server;
static sdr_qp *from, *to;

static void poll_both(double deadline, int line) {
    OK(sdr_poll(client));
    OK(sdr_poll(server));
    if (now() > deadline) {
        fail("progress", line, "not done in time");
    }
}

/* Polls both ends until the call no longer asks to try again. */
#define UNTIL(result, call)                                                                                            \
    do {                                                                                                               \
        double until_deadline = now() + 5.0;                                                                           \
        while (((result) = (call)) == SDR_RETRY) {                                                                     \
            poll_both(until_deadline, __LINE__);                                                                       \
        }                                                                                                              \
    } while (0)
#define UNTIL_OK(call)                                                                                                 \
    do {                                                                                                               \
        sdr_result until_result;                                                                                       \
        UNTIL(until_result, call);                                                                                     \
        expect(until_result, SDR_SUCCESS, #call, __LINE__);                                                            \
    } while (0)

static uint8_t pattern(size_t n, size_t i) {
    return (uint8_t)(i * 7 + i / 251 + n * 31);
}

static void fill(uint8_t *bytes, size_t length, size_t n) {
    size_t i;
    for (i = 0; i < length; i++) {
        bytes[i] = pattern(n, i);
    }
}

static int holds(const uint8_t *bytes, size_t first, size_t last, size_t n) {
    size_t i;
    for (i = first; i < last; i++) {
        if (bytes[i] != pattern(n, i)) {
            return 0;
        }
    }
    return 1;
}

static int all(const uint8_t *bytes, size_t length, uint8_t value) {
    size_t i;
    for (i = 0; i < length; i++) {
        if (bytes[i] != value) {
            return 0;
        }
    }
    return 1;
}

static sdr_send_wr send_wr(const sdr_mr *mr, const void *addr, size_t length) {
    sdr_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.mr = mr;
    wr.local_addr = addr;
    wr.length = length;
    return wr;
}

static sdr_recv_wr recv_wr(const sdr_mr *mr, void *addr, size_t length) {
    sdr_recv_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.mr = mr;
    wr.address = addr;
    wr.max_length = length;
    wr.packets_per_chunk = CHUNK_PACKETS;
    return wr;
}

static void open_both(void) {
    sdr_context_attr attr;
    char address[64];
    memset(&attr, 0, sizeof attr);
    attr.listen = "127.0.0.1:0";
    attr.channels = 2;
    OK(sdr_context_create(&attr, &server));
    OK(sdr_context_address(server, address, sizeof address));
    ERROR(sdr_context_address(server, address, 9), "needed");
    /* A client's address is known only where it is bound to one: these two exchange theirs. */
    OK(sdr_context_create(&attr, &client));
}

/* The exchange by hand: each side gives the other its bytes. */
static void connect_by_hand(void) {
    sdr_qp_attr attr;
    sdr_qp_state state;
    uint8_t a[256], b[256];
    size_t a_size, b_size;
    memset(&attr, 0, sizeof attr);
    attr.payload = PAYLOAD;
    attr.user_immediate = 1;
    OK(sdr_qp_create(client, &attr, &from));
    OK(sdr_qp_create(server, &attr, &to));
    OK(sdr_qp_info_size_get(from, &a_size));
    OK(sdr_qp_info_size_get(to, &b_size));
    CHECK(a_size <= sizeof a && b_size <= sizeof b);
    ERROR(sdr_qp_info_get(from, a, a_size - 1), "needed");
    OK(sdr_qp_info_get(from, a, sizeof a));
    OK(sdr_qp_info_get(to, b, sizeof b));
    ERROR(sdr_qp_query(from, &state), "not connected");
    ERROR(sdr_qp_connect(from, b, 3), "3 bytes");
    OK(sdr_qp_connect(from, b, b_size));
    OK(sdr_qp_connect(to, a, a_size));
    ERROR(sdr_qp_connect(to, a, a_size), "before");
    OK(sdr_qp_query(from, &state));
    CHECK(state.payload == PAYLOAD && state.channels == 2 && state.user_immediate && !state.closed);
    CHECK(state.max_message == (uint64_t)PAYLOAD << 18);
}

/* Two that do not agree name what they do not agree on. */
static void a_mismatch_is_named(void) {
    sdr_qp_attr attr;
    sdr_qp *a, *b;
    uint8_t info[256];
    memset(&attr, 0, sizeof attr);
    attr.payload = 512;
    OK(sdr_qp_create(client, &attr, &a));
    attr.payload = 1024;
    OK(sdr_qp_create(server, &attr, &b));
    OK(sdr_qp_info_get(b, info, sizeof info));
    size_t size;
    OK(sdr_qp_info_size_get(b, &size));
    ERROR(sdr_qp_connect(a, info, size), "payload");
    ERROR(sdr_qp_connect(a, info, size), "before");
    OK(sdr_qp_destroy(a));
    OK(sdr_qp_destroy(b));
    attr.layout = 7;
    ERROR(sdr_qp_create(client, &attr, &a), "layout is 7");
}

/* One-shot, from the program's memory into the program's memory. */
static void one_shot(void) {
    const size_t length = 10 * CHUNK + 100;
    uint8_t *source = (uint8_t *)malloc(length), *sink = (uint8_t *)malloc(length);
    sdr_mr *source_mr, *sink_mr;
    sdr_send *send;
    sdr_recv *recv;
    sdr_send_state state;
    const uint8_t *chunks;
    size_t count, i;
    uint64_t packets;
    uint32_t imm = 0;
    sdr_connection *connection;
    double deadline = now() + 5.0;

    CHECK(source && sink);
    fill(source, length, 1);
    memset(sink, 0xEE, length);
    OK(sdr_mr_reg(client, source, length, SDR_ACCESS_REMOTE_WRITE, &source_mr));
    OK(sdr_mr_reg(server, sink, length, SDR_ACCESS_REMOTE_WRITE, &sink_mr));
    CHECK(sdr_mr_addr(source_mr) == (void *)source);

    sdr_send_wr out = send_wr(source_mr, source, length);
    sdr_recv_wr in = recv_wr(sink_mr, sink, length);
    out.opcode = SDR_OP_WRITE_WITH_IMM;
    out.imm_value = 0xC0FFEE42u;

    /* Nothing is posted at the peer yet. */
    RETRY(sdr_send_post(from, &out, &send));
    in.packets_per_chunk = 65;
    ERROR(sdr_recv_post(to, &in, &recv), "65");
    in.packets_per_chunk = CHUNK_PACKETS;
    in.max_length = length + 1;
    ERROR(sdr_recv_post(to, &in, &recv), "not inside");
    in.max_length = length;
    OK(sdr_recv_post(to, &in, &recv));
    RETRY(sdr_mr_dereg(sink_mr));
    RETRY(sdr_qp_destroy(to));
    RETRY(sdr_connection_create(to, NULL, &connection));

    /* What cannot be sent is refused and uses nothing up. */
    UNTIL_OK(sdr_send_post(from, &out, &send));
    RETRY(sdr_mr_dereg(source_mr));
    RETRY(sdr_send_poll(send, &state));
    CHECK(state == SDR_SEND_INJECTING);
    RETRY(sdr_recv_imm_get(recv, &imm));

    OK(sdr_recv_bitmap_get(recv, &chunks, &count));
    CHECK(count == 11);
    for (i = 0; i < count; i++) {
        while (!chunks[i]) {
            poll_both(deadline, __LINE__);
        }
        CHECK(holds(sink, i * CHUNK, i + 1 < count ? (i + 1) * CHUNK : length, 1));
    }
    OK(sdr_recv_bitmap_chunk_expand(recv, 3, &packets));
    CHECK(packets == 0xF);
    OK(sdr_recv_bitmap_chunk_expand(recv, 10, &packets));
    CHECK(packets == 0x1);
    ERROR(sdr_recv_bitmap_chunk_expand(recv, 11, &packets), "has 11");
    OK(sdr_recv_imm_get(recv, &imm));
    CHECK(imm == 0xC0FFEE42u);
    UNTIL_OK(sdr_send_poll(send, &state));
    CHECK(state == SDR_SEND_INJECTED || state == SDR_SEND_COMPLETED);

    RETRY(sdr_recv_poll(recv));
    OK(sdr_recv_complete(recv));
    ERROR(sdr_recv_complete(recv), "completed");
    ERROR(sdr_recv_imm_get(recv, &imm), "completed");
    UNTIL_OK(sdr_recv_poll(recv));
    OK(sdr_recv_poll(recv));
    CHECK(holds(sink, 0, length, 1));

    OK(sdr_recv_free(recv));
    OK(sdr_send_free(send));
    UNTIL_OK(sdr_mr_dereg(source_mr));
    UNTIL_OK(sdr_mr_dereg(sink_mr));
    free(source);
    free(sink);
}

/* A send that is longer than the receive, and one too short for its immediate; then the same receive is used well. */
static void refusals(void) {
    sdr_mr *source_mr, *sink_mr;
    sdr_send *send = NULL;
    sdr_recv *recv;
    sdr_result r;
    OK(sdr_mr_alloc(client, 3 * CHUNK, &source_mr));
    OK(sdr_mr_alloc(server, 2 * CHUNK, &sink_mr));
    sdr_recv_wr in = recv_wr(sink_mr, sdr_mr_addr(sink_mr), 2 * CHUNK);
    OK(sdr_recv_post(to, &in, &recv));
    sdr_send_wr out = send_wr(source_mr, sdr_mr_addr(source_mr), 3 * CHUNK);
    UNTIL(r, sdr_send_post(from, &out, &send));
    CHECK(r == SDR_ERROR && strstr(sdr_last_error(), "12288") && strstr(sdr_last_error(), "8192"));
    out.length = 7 * PAYLOAD;
    out.opcode = SDR_OP_WRITE_WITH_IMM;
    ERROR(sdr_send_post(from, &out, &send), "immediate needs 8");
    out.opcode = 9;
    ERROR(sdr_send_post(from, &out, &send), "opcode is 9");
    out.opcode = SDR_OP_WRITE;
    out.mr = sink_mr;
    out.local_addr = sdr_mr_addr(sink_mr);
    ERROR(sdr_send_post(from, &out, &send), "another context");
    out.mr = source_mr;
    out.local_addr = (const uint8_t *)sdr_mr_addr(source_mr) - 1;
    ERROR(sdr_send_post(from, &out, &send), "not inside");
    out.local_addr = NULL;
    out.length = SIZE_MAX;
    ERROR(sdr_send_post(from, &out, &send), "not inside");
    CHECK(send == NULL);
    /* An empty message needs no address, and ends the receive's wait for a sender. */
    out.length = 0;
    OK(sdr_send_post(from, &out, &send));
    UNTIL_OK(sdr_send_poll(send, NULL));
    OK(sdr_send_free(send));
    OK(sdr_recv_free(recv));
    UNTIL_OK(sdr_mr_dereg(sink_mr));
    UNTIL_OK(sdr_mr_dereg(source_mr));
}

/* A stream with a hole in it; the receiver takes what is there and completes early. */
static void stream_with_a_hole(void) {
    const size_t length = 4 * CHUNK;
    sdr_mr *source_mr, *sink_mr;
    uint8_t *source, *sink;
    const uint8_t *chunks;
    size_t count, at;
    sdr_send *send;
    sdr_recv *recv;
    sdr_send_state state;
    sdr_stream_wr start;
    sdr_stream_part_wr part;
    sdr_result r;
    uint64_t packets;
    uint32_t imm;
    double deadline = now() + 5.0;
    OK(sdr_mr_alloc(client, length, &source_mr));
    OK(sdr_mr_alloc(server, length, &sink_mr));
    source = (uint8_t *)sdr_mr_addr(source_mr);
    sink = (uint8_t *)sdr_mr_addr(sink_mr);
    CHECK(all(source, length, 0));
    fill(source, length, 2);
    memset(sink, 0xEE, length);

    sdr_recv_wr in = recv_wr(sink_mr, sink, length);
    OK(sdr_recv_post(to, &in, &recv));
    memset(&start, 0, sizeof start);
    start.length = length;
    start.opcode = SDR_OP_WRITE_WITH_IMM;
    start.imm_value = 77;
    UNTIL_OK(sdr_send_stream_start(from, &start, &send));
    RETRY(sdr_send_poll(send, &state));
    CHECK(state == SDR_SEND_OPEN);

    memset(&part, 0, sizeof part);
    part.mr = source_mr;
    part.length = CHUNK;
    part.remote_offset = 5;
    part.local_addr = source;
    ERROR(sdr_send_stream_continue(send, &part), "not a multiple");
    part.remote_offset = length;
    ERROR(sdr_send_stream_continue(send, &part), "0 are left");
    part.flags = 8;
    ERROR(sdr_send_stream_continue(send, &part), "flags");
    part.flags = 0;
    /* The last chunk, half of the second, and the first: not the third. */
    part.remote_offset = 3 * CHUNK;
    part.local_addr = source + 3 * CHUNK;
    OK(sdr_send_stream_continue(send, &part));
    /* Four packets carry half of an immediate. */
    ERROR(sdr_send_stream_end(send), "immediate needs 8");
    part.length = CHUNK / 2;
    part.remote_offset = CHUNK;
    part.local_addr = source + CHUNK;
    OK(sdr_send_stream_continue(send, &part));
    part.length = CHUNK;
    part.remote_offset = 0;
    part.local_addr = source;
    OK(sdr_send_stream_continue(send, &part));
    part.flags = SDR_SEND_REPAIR;
    OK(sdr_send_stream_continue(send, &part));

    OK(sdr_recv_bitmap_get(recv, &chunks, &count));
    CHECK(count == 4);
    for (packets = 0; !(chunks[0] && chunks[3] && packets == 3);) {
        poll_both(deadline, __LINE__);
        OK(sdr_recv_bitmap_chunk_expand(recv, 1, &packets));
    }
    CHECK(!chunks[1] && !chunks[2]);
    OK(sdr_recv_bitmap_chunk_expand(recv, 2, &packets));
    CHECK(packets == 0);
    OK(sdr_recv_imm_get(recv, &imm));
    CHECK(imm == 77);

    /* Early: a chunk and a half are missing, and stay away. */
    OK(sdr_recv_complete(recv));
    UNTIL_OK(sdr_recv_poll(recv));
    part.flags = 0;
    part.remote_offset = 2 * CHUNK;
    part.local_addr = source + 2 * CHUNK;
    deadline = now() + 5.0;
    do {
        poll_both(deadline, __LINE__);
        r = sdr_send_stream_continue(send, &part);
    } while (r == SDR_SUCCESS);
    expect(r, SDR_ERROR, "sdr_send_stream_continue", __LINE__);
    CHECK(strstr(sdr_last_error(), "completed"));
    OK(sdr_send_stream_end(send));
    ERROR(sdr_send_stream_continue(send, &part), "not an open stream");
    ERROR(sdr_send_stream_end(send), "not an open stream");
    UNTIL_OK(sdr_send_poll(send, &state));
    CHECK(state == SDR_SEND_COMPLETED);
    for (at = 0; at < 100; at++) {
        poll_both(deadline, __LINE__);
    }
    CHECK(holds(sink, 0, CHUNK + CHUNK / 2, 2) && holds(sink, 3 * CHUNK, length, 2));
    CHECK(all(sink + CHUNK + CHUNK / 2, CHUNK + CHUNK / 2, 0xEE));

    OK(sdr_send_free(send));
    OK(sdr_recv_free(recv));
    UNTIL_OK(sdr_mr_dereg(source_mr));
    UNTIL_OK(sdr_mr_dereg(sink_mr));
}

static void destroy_in_order(void) {
    sdr_qp_state state;
    double deadline = now() + 5.0;
    RETRY(sdr_context_destroy(client));
    OK(sdr_qp_destroy(from));
    /* The other side is told. */
    do {
        poll_both(deadline, __LINE__);
        OK(sdr_qp_query(to, &state));
    } while (!state.closed);
    OK(sdr_qp_destroy(to));
    OK(sdr_context_destroy(client));
    OK(sdr_context_destroy(server));
    client = server = NULL;
}

/* Dial and accept; nobody is where nobody listens. */
static void connect_by_dialling(void) {
    char address[64];
    sdr_context_attr attr;
    sdr_dialing *dialing;
    sdr_qp_state state;
    sdr_result r = SDR_RETRY, accepted = SDR_RETRY;
    double deadline = now() + 5.0;
    memset(&attr, 0, sizeof attr);
    attr.listen = "127.0.0.1:0";
    OK(sdr_context_create(&attr, &server));
    OK(sdr_context_address(server, address, sizeof address));
    attr.listen = NULL;
    attr.peer = address;
    OK(sdr_context_create(&attr, &client));
    ERROR(sdr_dial(client, "somewhere", NULL, &dialing), "somewhere");
    RETRY(sdr_accept(server, &to));
    OK(sdr_dial(client, address, NULL, &dialing));
    while (r == SDR_RETRY || accepted == SDR_RETRY) {
        poll_both(deadline, __LINE__);
        if (accepted == SDR_RETRY) {
            accepted = sdr_accept(server, &to);
        }
        if (r == SDR_RETRY) {
            r = sdr_dial_poll(dialing, &from);
        }
    }
    OK(r);
    OK(accepted);
    OK(sdr_dial_free(dialing));
    OK(sdr_qp_query(to, &state));
    CHECK(state.payload >= 1024 && state.channels == 4 && !state.user_immediate);
    size_t size;
    ERROR(sdr_qp_info_size_get(to, &size), "exchange");
}

static pthread_mutex_t stop_lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

/* The server's progress, on a thread of its own. */
static void *poll_server(void *nothing) {
    int ended = 0;
    (void)nothing;
    while (!ended) {
        OK(sdr_poll(server));
        pthread_mutex_lock(&stop_lock);
        ended = stop;
        pthread_mutex_unlock(&stop_lock);
    }
    return NULL;
}

static void reliable_messages(void) {
    const size_t lengths[] = {0, 1, 1000, 8192, 100001, 3u << 20};
    const size_t count = sizeof lengths / sizeof lengths[0], most = 3u << 20;
    sdr_connection_attr attr;
    sdr_connection *a, *b;
    sdr_mr *source_mr, *sink_mr;
    uint8_t *sink = (uint8_t *)malloc(most), *source;
    sdr_transfer *send, *recv;
    sdr_completion done;
    pthread_t thread;
    size_t n;
    CHECK(sink);
    memset(&attr, 0, sizeof attr);
    attr.packets_per_chunk = 65;
    ERROR(sdr_connection_create(from, &attr, &a), "65");
    attr.packets_per_chunk = 0;
    attr.progress_timeout_ns = 4ull * SECOND;
    OK(sdr_connection_create(from, &attr, &a));
    OK(sdr_connection_create(to, NULL, &b));
    OK(sdr_mr_alloc(client, most, &source_mr));
    OK(sdr_mr_reg(server, sink, most, SDR_ACCESS_REMOTE_WRITE, &sink_mr));
    source = (uint8_t *)sdr_mr_addr(source_mr);
    CHECK(pthread_create(&thread, NULL, poll_server, NULL) == 0);

    for (n = 0; n < count; n++) {
        const size_t length = lengths[n];
        fill(source, length, n);
        memset(sink, 0xEE, most);
        sdr_recv_wr in = recv_wr(sink_mr, sink, n % 2 ? most : length);
        sdr_send_wr out = send_wr(source_mr, source, length);
        out.opcode = n % 3 ? SDR_OP_WRITE_WITH_IMM : SDR_OP_WRITE;
        out.imm_value = 1000 + (uint32_t)n;
        OK(sdr_message_recv(b, &in, &recv));
        OK(sdr_message_send(a, &out, &send));
        OK(sdr_transfer_wait(send, 5ull * SECOND, &done));
        CHECK(done.message == n && done.length == length && done.packets * 65536 >= length);
        OK(sdr_transfer_wait(recv, 5ull * SECOND, &done));
        CHECK(done.message == n && done.length == length);
        CHECK(done.has_imm == (n % 3 != 0) && done.imm_value == (n % 3 ? 1000 + n : 0));
        OK(sdr_transfer_poll(recv, NULL));
        CHECK(holds(sink, 0, length, n) && all(sink + length, most - length, 0xEE));
        OK(sdr_transfer_free(send));
        OK(sdr_transfer_free(recv));
    }

    /* Longer than its receive: both halves fail, the connection lives. */
    sdr_recv_wr in = recv_wr(sink_mr, sink, 100);
    sdr_send_wr out = send_wr(source_mr, source, 101);
    OK(sdr_message_recv(b, &in, &recv));
    OK(sdr_message_send(a, &out, &send));
    ERROR(sdr_transfer_wait(send, 5ull * SECOND, &done), "101");
    ERROR(sdr_transfer_poll(send, &done), "101");
    OK(sdr_transfer_free(send));
    ERROR(sdr_transfer_wait(recv, 5ull * SECOND, NULL), "");
    OK(sdr_transfer_free(recv));

    /* Nothing comes: the wait ends, the memory stays in use until the cancelled receive is over. */
    OK(sdr_message_recv(b, &in, &recv));
    RETRY(sdr_transfer_wait(recv, 5000000, &done));
    RETRY(sdr_mr_dereg(sink_mr));
    OK(sdr_transfer_free(recv));
    sdr_result r;
    double deadline = now() + 5.0;
    while ((r = sdr_mr_dereg(sink_mr)) == SDR_RETRY) {
        poll_both(deadline, __LINE__);
    }
    OK(r);

    while ((r = sdr_connection_close(a)) == SDR_RETRY) {
        poll_both(deadline, __LINE__);
    }
    OK(r);
    OK(sdr_message_send(a, &out, &send));
    ERROR(sdr_transfer_poll(send, NULL), "closed");
    OK(sdr_transfer_free(send));
    OK(sdr_connection_destroy(a));
    OK(sdr_connection_destroy(b));
    pthread_mutex_lock(&stop_lock);
    stop = 1;
    pthread_mutex_unlock(&stop_lock);
    CHECK(pthread_join(thread, NULL) == 0);
    RETRY(sdr_context_destroy(client));
    UNTIL_OK(sdr_mr_dereg(source_mr));
    OK(sdr_context_destroy(client));
    OK(sdr_context_destroy(server));
    client = server = NULL;
    free(sink);
}

/* Null is an answer everywhere; what is freed may be null. */
static void nulls(void) {
    sdr_context_attr attr;
    sdr_context *context;
    sdr_qp *qp;
    sdr_mr *mr;
    sdr_send *send;
    sdr_recv *recv;
    sdr_transfer *transfer;
    sdr_connection *connection;
    sdr_dialing *dialing;
    uint8_t byte = 0;
    size_t size;
    uint64_t word;
    uint32_t imm;
    const uint8_t *chunks;
    sdr_qp_state state;
    CHECK(strcmp(sdr_last_error(), "") == 0);
    ERROR(sdr_context_create(NULL, NULL), "context is NULL");
    memset(&attr, 0, sizeof attr);
    attr.channels = 256;
    ERROR(sdr_context_create(&attr, &context), "256");
    attr.channels = 0;
    attr.listen = "127.0.0.1";
    ERROR(sdr_context_create(&attr, &context), "give an address and a port");
    attr.listen = "\xff";
    ERROR(sdr_context_create(&attr, &context), "UTF-8");
    OK(sdr_context_create(NULL, &context));

    ERROR(sdr_poll(NULL), "context is NULL");
    ERROR(sdr_context_address(NULL, (char *)&byte, 1), "context is NULL");
    ERROR(sdr_context_address(context, NULL, 1), "text is NULL");
    ERROR(sdr_mr_reg(NULL, &byte, 1, 0, &mr), "context is NULL");
    ERROR(sdr_mr_reg(context, NULL, 1, 0, &mr), "addr is NULL");
    ERROR(sdr_mr_reg(context, &byte, 0, 0, &mr), "1 to");
    ERROR(sdr_mr_reg(context, &byte, 1, 2, &mr), "flags is 2");
    ERROR(sdr_mr_reg(context, &byte, 1, 0, NULL), "mr is NULL");
    ERROR(sdr_mr_alloc(NULL, 1, &mr), "context is NULL");
    ERROR(sdr_mr_alloc(context, 0, &mr), "1 to");
    ERROR(sdr_mr_alloc(context, 1, NULL), "mr is NULL");
    CHECK(sdr_mr_addr(NULL) == NULL);
    ERROR(sdr_qp_create(NULL, NULL, &qp), "context is NULL");
    ERROR(sdr_qp_create(context, NULL, NULL), "qp is NULL");
    ERROR(sdr_qp_info_size_get(NULL, &size), "qp is NULL");
    ERROR(sdr_qp_info_get(NULL, &byte, 1), "qp is NULL");
    ERROR(sdr_qp_connect(NULL, &byte, 1), "qp is NULL");
    ERROR(sdr_qp_query(NULL, &state), "qp is NULL");
    ERROR(sdr_dial(NULL, "127.0.0.1:1", NULL, &dialing), "context is NULL");
    ERROR(sdr_dial(context, NULL, NULL, &dialing), "peer is NULL");
    ERROR(sdr_dial(context, "127.0.0.1:1", NULL, NULL), "dialing is NULL");
    ERROR(sdr_dial_poll(NULL, &qp), "dialing is NULL");
    ERROR(sdr_accept(NULL, &qp), "context is NULL");
    ERROR(sdr_accept(context, NULL), "qp is NULL");
    ERROR(sdr_send_post(NULL, NULL, &send), "qp is NULL");
    ERROR(sdr_send_stream_start(NULL, NULL, &send), "qp is NULL");
    ERROR(sdr_send_stream_continue(NULL, NULL), "send is NULL");
    ERROR(sdr_send_stream_end(NULL), "send is NULL");
    ERROR(sdr_send_poll(NULL, NULL), "send is NULL");
    ERROR(sdr_recv_post(NULL, NULL, &recv), "qp is NULL");
    ERROR(sdr_recv_bitmap_get(NULL, &chunks, &size), "recv is NULL");
    ERROR(sdr_recv_bitmap_chunk_expand(NULL, 0, &word), "recv is NULL");
    ERROR(sdr_recv_imm_get(NULL, &imm), "recv is NULL");
    ERROR(sdr_recv_complete(NULL), "recv is NULL");
    ERROR(sdr_recv_poll(NULL), "recv is NULL");
    ERROR(sdr_connection_create(NULL, NULL, &connection), "qp is NULL");
    ERROR(sdr_connection_close(NULL), "connection is NULL");
    ERROR(sdr_message_send(NULL, NULL, &transfer), "connection is NULL");
    ERROR(sdr_message_recv(NULL, NULL, &transfer), "connection is NULL");
    ERROR(sdr_transfer_poll(NULL, NULL), "transfer is NULL");
    ERROR(sdr_transfer_wait(NULL, 1, NULL), "transfer is NULL");

    OK(sdr_qp_create(context, NULL, &qp));
    sdr_send_wr out = send_wr(NULL, &byte, 1);
    sdr_recv_wr in = recv_wr(NULL, &byte, 1);
    ERROR(sdr_send_post(qp, NULL, &send), "wr is NULL");
    ERROR(sdr_send_post(qp, &out, NULL), "send is NULL");
    ERROR(sdr_send_post(qp, &out, &send), "wr->mr is NULL");
    ERROR(sdr_recv_post(qp, &in, &recv), "wr->mr is NULL");
    ERROR(sdr_connection_create(qp, NULL, &connection), "not connected");
    OK(sdr_mr_reg(context, &byte, 1, 0, &mr));
    in.mr = mr;
    ERROR(sdr_recv_post(qp, &in, &recv), "not connected");
    RETRY(sdr_context_destroy(context));
    OK(sdr_qp_destroy(qp));
    OK(sdr_mr_dereg(mr));
    OK(sdr_context_destroy(context));

    OK(sdr_context_destroy(NULL));
    OK(sdr_mr_dereg(NULL));
    OK(sdr_qp_destroy(NULL));
    OK(sdr_dial_free(NULL));
    OK(sdr_send_free(NULL));
    OK(sdr_recv_free(NULL));
    OK(sdr_connection_destroy(NULL));
    OK(sdr_transfer_free(NULL));
}

int main(void) {
    nulls();

    open_both();
    a_mismatch_is_named();
    connect_by_hand();
    one_shot();
    refusals();
    stream_with_a_hole();
    destroy_in_order();

    connect_by_dialling();
    reliable_messages();
    return 0;
}
