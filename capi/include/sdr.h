/*
 * The transport's C interface: messages over RDMA writes that show what has arrived, and reliable messages above them.
 * Written by `cargo xtask gen-header` from capi/src; change it there.
 *
 * A program opens a context (sdr_context_create), registers memory (sdr_mr_reg or sdr_mr_alloc) and connects queue pairs
 * (sdr_dial and sdr_accept, or sdr_qp_create and sdr_qp_connect). On a queue pair it posts sends and receives, and reads
 * from the bitmap of a receive which chunks of it have arrived; nothing is repaired. A connection (sdr_connection_create)
 * takes the queue pair over and makes messages whole.
 *
 * Results. Every call that can fail returns sdr_result; sdr_last_error has the reason. No call blocks, but for those named
 * _wait, which have a time limit. All progress is made inside sdr_poll and the _wait calls.
 *
 * Handles. They are opaque, made and freed by the calls named after them. A handle is given to the call that frees it
 * once, and to none after it has succeeded. What belongs to something is freed before it: freeing a parent first answers SDR_RETRY and
 * frees nothing. Pointers and handles that are NULL are answered with SDR_ERROR, unless NULL is allowed.
 *
 * Threads. Every call may be made from any thread, also at the same time as others on the same handle; only the call
 * that frees a handle is the last to use it. sdr_last_error is about the calling thread. After fork the child uses none
 * of the parent's handles.
 *
 * Memory is the program's, and registered: what may be done with it while something is posted there stands at
 * sdr_mr_reg. Lengths and offsets are in bytes, times in nanoseconds. Attributes and requests are zeroed first (= {0}):
 * 0 is the default of every field, also of those that a later version adds.
 */


#ifndef SDR_H
#define SDR_H

#include <stddef.h>
#include <stdint.h>

/**
 * Flag of `sdr_mr_reg`: peers may write here, where a receive is posted.
 */
#define SDR_ACCESS_REMOTE_WRITE 0

/**
 * Layout of the immediate: 1,024 slots, 2^18 packets a message. The default.
 */
#define SDR_LAYOUT_10_18_4 0

/**
 * Layout of the immediate: 256 slots, 2^22 packets a message.
 */
#define SDR_LAYOUT_8_22_2 1

/**
 * Operation: write the bytes.
 */
#define SDR_OP_WRITE 0

/**
 * Operation: write the bytes and give the receiver a 32-bit immediate.
 */
#define SDR_OP_WRITE_WITH_IMM 1

/**
 * Flag of `sdr_send_stream_continue`: these packets were posted before. They take other channels than the first time.
 */
#define SDR_SEND_REPAIR 1

/**
 * What every call answers. `sdr_last_error` has the reason when it is not `SDR_SUCCESS`.
 */
typedef enum sdr_result {
    /**
     * Done.
     */
    SDR_SUCCESS = 0,
    /**
     * Refused or failed. The call changed nothing unless it says so.
     */
    SDR_ERROR = 1,
    /**
     * Not now. Nothing changed unless the call says so; make progress with `sdr_poll`, then call again.
     */
    SDR_RETRY = 2,
} sdr_result;

/**
 * Where a send stands. None of these means delivered.
 */
typedef enum sdr_send_state {
    /**
     * A stream that was not ended.
     */
    SDR_SEND_OPEN = 0,
    /**
     * Packets wait for the NIC, or it still needs the memory.
     */
    SDR_SEND_INJECTING = 1,
    /**
     * Everything was injected; the memory may be written again.
     */
    SDR_SEND_INJECTED = 2,
    /**
     * The receiver completed the receive, whole or not; nothing more is injected. The memory may be written again.
     */
    SDR_SEND_COMPLETED = 3,
    /**
     * The queue pair closed before everything was injected. The memory may be written once it is destroyed.
     */
    SDR_SEND_CLOSED = 4,
} sdr_send_state;

/**
 * Reliable messages to and from one peer.
 */
typedef struct sdr_connection sdr_connection;

/**
 * A NIC in software and what belongs to it: memory, queue pairs, connections.
 */
typedef struct sdr_context sdr_context;

/**
 * A connection attempt.
 */
typedef struct sdr_dialing sdr_dialing;

/**
 * Registered memory.
 */
typedef struct sdr_mr sdr_mr;

/**
 * A queue pair.
 */
typedef struct sdr_qp sdr_qp;

/**
 * A posted receive.
 */
typedef struct sdr_recv sdr_recv;

/**
 * A send.
 */
typedef struct sdr_send sdr_send;

/**
 * A send or receive of a connection.
 */
typedef struct sdr_transfer sdr_transfer;

/**
 * What a context is to be. A zeroed structure asks for the defaults.
 */
typedef struct sdr_context_attr {
    /**
     * Address and port to be found at, such as `192.0.2.1:7000` or `[::1]:0`; port 0 lets the system choose. NULL for a
     * NIC that only dials.
     */
    const char *listen;
    /**
     * Used only where `listen` is NULL: a server that will be dialled, for the family of addresses. NULL means IPv4.
     */
    const char *peer;
    /**
     * Channels: packets are sprayed over them, each a flow of its own where the NIC dials. 0 means 4; 255 at most.
     */
    uint32_t channels;
    /**
     * No packet is on its way for longer than this, in nanoseconds. 0 means one second.
     */
    uint64_t packet_lifetime_ns;
} sdr_context_attr;

/**
 * What a connection is to be. A zeroed structure asks for the defaults.
 */
typedef struct sdr_connection_attr {
    /**
     * Injection rate in bits of payload a second. 0 means as fast as the NIC takes packets.
     */
    uint64_t rate_bits;
    /**
     * A message without progress for so long fails, in nanoseconds. 0 means 10 s.
     */
    uint64_t progress_timeout_ns;
    /**
     * A send for which the peer posts no receive for so long fails, in nanoseconds. 0 means 30 s.
     */
    uint64_t receive_timeout_ns;
    /**
     * After it is closed, what was accepted may take this long, in nanoseconds. 0 means 3 s.
     */
    uint64_t linger_ns;
    /**
     * Packets a chunk of its receives, 1 to 64. 0 means 16.
     */
    uint32_t packets_per_chunk;
} sdr_connection_attr;

/**
 * A whole message.
 */
typedef struct sdr_send_wr {
    /**
     * Memory that `local_addr` lies in.
     */
    const struct sdr_mr *mr;
    /**
     * First byte; anything when `length` is 0.
     */
    const void *local_addr;
    /**
     * Bytes.
     */
    size_t length;
    /**
     * `SDR_OP_WRITE` or `SDR_OP_WRITE_WITH_IMM`.
     */
    uint32_t opcode;
    /**
     * The immediate, with `SDR_OP_WRITE_WITH_IMM`.
     */
    uint32_t imm_value;
} sdr_send_wr;

/**
 * A receive of one message.
 */
typedef struct sdr_recv_wr {
    /**
     * Memory that `address` lies in.
     */
    const struct sdr_mr *mr;
    /**
     * First byte; anything when `max_length` is 0.
     */
    void *address;
    /**
     * Bytes: the longest message that fits.
     */
    size_t max_length;
    /**
     * Packets a chunk, 1 to 64: what one byte of the bitmap stands for. 0 means 16. A connection has its own.
     */
    uint32_t packets_per_chunk;
} sdr_recv_wr;

/**
 * A message that was transferred whole.
 */
typedef struct sdr_completion {
    /**
     * Number of the message in its direction, from 0.
     */
    uint64_t message;
    /**
     * Its length in bytes; it stands at the beginning of the receive.
     */
    uint64_t length;
    /**
     * Sends: packets that were sent, repairs included. Receives: 0.
     */
    uint64_t packets;
    /**
     * Sends: packets that were sent again. Receives: 0.
     */
    uint64_t repairs;
    /**
     * Receives: not 0 when the sender gave an immediate. Sends: 0.
     */
    uint32_t has_imm;
    /**
     * Receives: that immediate. Otherwise 0.
     */
    uint32_t imm_value;
} sdr_completion;

/**
 * What a queue pair is to be. A zeroed structure asks for the defaults. Both sides need the same.
 */
typedef struct sdr_qp_attr {
    /**
     * Payload bytes of a full packet. 0 means the largest that passes where the queue pair is dialled, and the largest of
     * the NIC, whatever the path, where it is created.
     */
    uint32_t payload;
    /**
     * Channels to spray over. 0 means all of the context.
     */
    uint32_t channels;
    /**
     * Slots: receives that can be posted at once. A power of two; 0 means as many as the layout has.
     */
    uint32_t slots;
    /**
     * Generations: uses of a slot before late packets of an old one could be taken for new ones. A power of two; 0 means
     * as many as the NIC has.
     */
    uint32_t generations;
    /**
     * `SDR_LAYOUT_10_18_4` or `SDR_LAYOUT_8_22_2`.
     */
    uint32_t layout;
    /**
     * Not 0: packets carry a user immediate, `SDR_OP_WRITE_WITH_IMM` works with `sdr_send_post`. Messages of a
     * connection carry one in any case.
     */
    uint32_t user_immediate;
} sdr_qp_attr;

/**
 * What a connected queue pair came to.
 */
typedef struct sdr_qp_state {
    /**
     * Largest message in bytes.
     */
    uint64_t max_message;
    /**
     * Smoothed round-trip time in nanoseconds; a guess until one was measured.
     */
    uint64_t rtt_ns;
    /**
     * Payload bytes of every packet but the last of a message.
     */
    uint32_t payload;
    /**
     * Channels it sprays over.
     */
    uint32_t channels;
    /**
     * Not 0: packets carry a user immediate.
     */
    uint32_t user_immediate;
    /**
     * Not 0: it no longer works, on whichever side it was closed.
     */
    uint32_t closed;
} sdr_qp_state;

/**
 * The start of a stream.
 */
typedef struct sdr_stream_wr {
    /**
     * Bytes of the whole message.
     */
    uint64_t length;
    /**
     * `SDR_OP_WRITE` or `SDR_OP_WRITE_WITH_IMM`.
     */
    uint32_t opcode;
    /**
     * The immediate, with `SDR_OP_WRITE_WITH_IMM`.
     */
    uint32_t imm_value;
} sdr_stream_wr;

/**
 * Packets of a stream.
 */
typedef struct sdr_stream_part_wr {
    /**
     * Memory that `local_addr` lies in.
     */
    const struct sdr_mr *mr;
    /**
     * First byte.
     */
    const void *local_addr;
    /**
     * Bytes: whole packets, unless the part reaches to the end of the message.
     */
    size_t length;
    /**
     * Where the bytes belong in the message, in bytes: a multiple of `sdr_qp_state.payload`.
     */
    uint64_t remote_offset;
    /**
     * 0 or `SDR_SEND_REPAIR`.
     */
    uint32_t flags;
} sdr_stream_part_wr;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a software NIC over UDP and a context on it.
 *
 * `attr` may be NULL: a NIC that dials, with defaults.
 *
 * # Safety
 * `attr` is NULL or points to an attribute structure whose strings are NULL or NUL-terminated. `context` is NULL (an
 * error) or valid for a write.
 */
enum sdr_result sdr_context_create(const struct sdr_context_attr *attr,
                                   struct sdr_context **context);

/**
 * Closes the context; connections that were destroyed but still wind up are cut off. NULL is allowed.
 *
 * Answers `SDR_RETRY`, and destroys nothing, while memory, a queue pair, a connection or any other handle of it exists.
 *
 * # Safety
 * `context` is NULL or a handle that nobody uses any more; after success it is gone.
 */
enum sdr_result sdr_context_destroy(struct sdr_context *context);

/**
 * Makes progress: takes what has come in, sends what is due, moves connections on. It does not wait.
 *
 * Posts only record what is wanted; this call, and the waiting ones, act on it. Call it all the time while anything is
 * under way, and every few milliseconds while nothing is, or peers believe that this side is gone. With another thread
 * inside, it returns at once: that one makes the progress.
 *
 * # Safety
 * `context` is NULL (an error) or a handle.
 */
enum sdr_result sdr_poll(struct sdr_context *context);

/**
 * Where clients find this context, as text: what `sdr_dial` at the other side takes.
 *
 * Writes at most `size` bytes, the terminating NUL included; 64 are enough. Fails when `size` is too small.
 *
 * # Safety
 * `context` is NULL (an error) or a handle; `text` is NULL (an error) or valid for writes of `size` bytes.
 */
enum sdr_result sdr_context_address(const struct sdr_context *context, char *text, size_t size);

/**
 * Registers `length` bytes at `addr` that stay the caller's.
 *
 * From here until `sdr_mr_dereg` has succeeded, the memory must stay allocated and initialised, be registered only once
 * and not be moved or protected. The program may read and write it all that time, except: bytes that are posted to be
 * sent are not written until the send no longer needs them (`sdr_send_poll`, or the end of the transfer); bytes that
 * are posted to be received into are neither read nor written, nor posted a second time, until the receive is over
 * (`sdr_recv_poll`, or the end of the transfer), but chunks that the bitmap shows as arrived may be read.
 *
 * `flags` is `SDR_ACCESS_REMOTE_WRITE`.
 *
 * # Safety
 * `context` is NULL (an error) or a handle, `mr` is NULL (an error) or valid for a write. `addr` is NULL (an error) or
 * the memory is as described above, for as long as described above.
 */
enum sdr_result sdr_mr_reg(struct sdr_context *context,
                           void *addr,
                           size_t length,
                           uint32_t flags,
                           struct sdr_mr **mr);

/**
 * Allocates and registers `length` zeroed bytes, which belong to the context; `sdr_mr_addr` says where they are.
 *
 * They are used as described at `sdr_mr_reg`; `sdr_mr_dereg` frees them.
 *
 * # Safety
 * `context` is NULL (an error) or a handle, `mr` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_mr_alloc(struct sdr_context *context,
                             size_t length,
                             struct sdr_mr **mr);

/**
 * First byte of registered memory; NULL for NULL.
 *
 * # Safety
 * `mr` is NULL or a handle.
 */
void *sdr_mr_addr(const struct sdr_mr *mr);

/**
 * Ends a registration. NULL is allowed.
 *
 * Answers `SDR_RETRY` while anything is posted in the memory: then it is still in use and must stay. A completed receive
 * counts until `sdr_recv_poll` said that its memory is back or it was freed; a transfer until its result was asked for or
 * it was freed. After success the library knows nothing of the memory any more; what `sdr_mr_alloc` gave is gone.
 *
 * # Safety
 * `mr` is NULL or a handle that nobody uses any more; after success it is gone.
 */
enum sdr_result sdr_mr_dereg(struct sdr_mr *mr);

/**
 * Makes a connection of a connected queue pair. `attr` may be NULL.
 *
 * After success the connection has the queue pair, and `qp` is gone; otherwise `qp` is as before. `SDR_RETRY` while
 * handles of its sends and receives exist. Both sides make one, before anything was sent or received.
 *
 * ```c
 * sdr_connection *connection;
 * sdr_transfer *transfer;
 * sdr_completion done;
 * sdr_send_wr wr = {.mr = mr, .local_addr = bytes, .length = length};
 * r = sdr_connection_create(qp, NULL, &connection);
 * r = sdr_message_send(connection, &wr, &transfer);
 * r = sdr_transfer_wait(transfer, 5000000000u, &done);
 * sdr_transfer_free(transfer);
 * ```
 *
 * # Safety
 * `qp` is NULL (an error) or a handle that nobody else uses; after success it is gone. `attr` is NULL or points to
 * attributes. `connection` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_connection_create(struct sdr_qp *qp,
                                      const struct sdr_connection_attr *attr,
                                      struct sdr_connection **connection);

/**
 * Stops taking messages and tells the peer when those that were accepted are over, or have lingered for too long.
 *
 * `SDR_RETRY` until that is done: go on polling. Without it, the peer of a connection that is destroyed right away may
 * have to find out by silence.
 *
 * # Safety
 * `connection` is NULL (an error) or a handle.
 */
enum sdr_result sdr_connection_close(struct sdr_connection *connection);

/**
 * Frees a connection's handle, and closes it as `sdr_connection_close` does: it winds up while the context is polled, and
 * is cut off when the context is destroyed. NULL is allowed.
 *
 * # Safety
 * `connection` is NULL or a handle that nobody uses any more; afterwards it is gone.
 */
enum sdr_result sdr_connection_destroy(struct sdr_connection *connection);

/**
 * Sends a message into the peer's next `sdr_message_recv`; the transfer ends when the peer has every byte.
 *
 * The peer may be slower: messages wait here for their receives. An immediate goes with a message of any length.
 *
 * # Safety
 * `connection` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an
 * error) or a handle; the bytes are not written until the transfer has ended, or the memory was given back. `transfer` is
 * NULL (an error) or valid for a write.
 */
enum sdr_result sdr_message_send(struct sdr_connection *connection,
                                 const struct sdr_send_wr *wr,
                                 struct sdr_transfer **transfer);

/**
 * Receives the peer's next message. The transfer ends when all of it is there and nothing writes the memory any more.
 *
 * `wr->packets_per_chunk` is not used.
 *
 * # Safety
 * `connection` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an
 * error) or a handle; the bytes are neither read nor written nor posted again until the transfer has ended well, or the
 * memory was given back. `transfer` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_message_recv(struct sdr_connection *connection,
                                 const struct sdr_recv_wr *wr,
                                 struct sdr_transfer **transfer);

/**
 * Whether a transfer is over: `SDR_SUCCESS` when it ended well, `SDR_ERROR` when it failed, `SDR_RETRY` before. The answer
 * stays the same. `completion` may be NULL; it is written with `SDR_SUCCESS`.
 *
 * # Safety
 * `transfer` is NULL (an error) or a handle, `completion` is NULL or valid for a write.
 */
enum sdr_result sdr_transfer_poll(struct sdr_transfer *transfer,
                                  struct sdr_completion *completion);

/**
 * As `sdr_transfer_poll`, but makes progress on the transfer's context, and rests when there is none to make, for at most
 * `timeout_ns` nanoseconds; then it is `SDR_RETRY`. With two contexts in one thread only this one moves.
 *
 * # Safety
 * `transfer` is NULL (an error) or a handle, `completion` is NULL or valid for a write.
 */
enum sdr_result sdr_transfer_wait(struct sdr_transfer *transfer,
                                  uint64_t timeout_ns,
                                  struct sdr_completion *completion);

/**
 * Frees a transfer. NULL is allowed.
 *
 * One that is under way is cancelled: its message is not delivered, the peer's half of it fails, the messages after it
 * are not affected. Its memory may be in use for a while longer; `sdr_mr_dereg` knows.
 *
 * # Safety
 * `transfer` is NULL or a handle that nobody uses any more; afterwards it is gone.
 */
enum sdr_result sdr_transfer_free(struct sdr_transfer *transfer);

/**
 * Creates a queue pair. `attr` may be NULL.
 *
 * Next, bring the bytes of `sdr_qp_info_get` to the peer by any means, and give the peer's to `sdr_qp_connect`. The NIC
 * must be reachable at the address that it is bound to: give `sdr_context_create` a full listen address.
 *
 * # Safety
 * `context` is NULL (an error) or a handle, `attr` is NULL or points to attributes, `qp` is NULL (an error) or valid for
 * a write.
 */
enum sdr_result sdr_qp_create(struct sdr_context *context,
                              const struct sdr_qp_attr *attr,
                              struct sdr_qp **qp);

/**
 * Closes a queue pair for both sides. NULL is allowed.
 *
 * Answers `SDR_RETRY` while a handle of one of its sends or receives exists.
 *
 * # Safety
 * `qp` is NULL or a handle that nobody uses any more; after success it is gone.
 */
enum sdr_result sdr_qp_destroy(struct sdr_qp *qp);

/**
 * Bytes that `sdr_qp_info_get` writes.
 *
 * # Safety
 * `qp` is NULL (an error) or a handle, `size` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_qp_info_size_get(const struct sdr_qp *qp, size_t *size);

/**
 * What the peer needs for `sdr_qp_connect`: opaque bytes. Fails when `size` is less than `sdr_qp_info_size_get` says.
 *
 * # Safety
 * `qp` is NULL (an error) or a handle, `info` is NULL (an error) or valid for writes of `size` bytes.
 */
enum sdr_result sdr_qp_info_get(const struct sdr_qp *qp,
                                void *info,
                                size_t size);

/**
 * Connects a queue pair to the peer's, whose `sdr_qp_info_get` wrote `info`.
 *
 * Where both sides differ in an attribute it fails, `sdr_last_error` names the attribute, and the queue pair can only be
 * destroyed. Bytes that are no such information are refused without that.
 *
 * # Safety
 * `qp` is NULL (an error) or a handle, `info` is NULL (an error) or points to `size` readable bytes.
 */
enum sdr_result sdr_qp_connect(struct sdr_qp *qp,
                               const void *info,
                               size_t size);

/**
 * What a connected queue pair came to.
 *
 * # Safety
 * `qp` is NULL (an error) or a handle, `state` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_qp_query(const struct sdr_qp *qp, struct sdr_qp_state *state);

/**
 * Starts to connect to the context that listens at `peer`, such as "192.0.2.1:7000". `attr` may be NULL.
 *
 * Then call `sdr_poll` and `sdr_dial_poll` in turns:
 *
 * ```c
 * sdr_dialing *dialing;
 * sdr_qp *qp;
 * sdr_result r = sdr_dial(context, "192.0.2.1:7000", NULL, &dialing);
 * if (r != SDR_SUCCESS) ...
 * do {
 *     sdr_poll(context);
 *     r = sdr_dial_poll(dialing, &qp);
 * } while (r == SDR_RETRY);
 * sdr_dial_free(dialing);
 * ```
 *
 * # Safety
 * `context` is NULL (an error) or a handle, `peer` is NULL (an error) or a NUL-terminated string, `attr` is NULL or
 * points to attributes, `dialing` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_dial(struct sdr_context *context,
                         const char *peer,
                         const struct sdr_qp_attr *attr,
                         struct sdr_dialing **dialing);

/**
 * The connected queue pair, once there is one; `SDR_RETRY` while there is none yet. It is given once.
 *
 * Nobody there, or refused: `SDR_ERROR`, some seconds later or at once. Both are final.
 *
 * # Safety
 * `dialing` is NULL (an error) or a handle, `qp` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_dial_poll(struct sdr_dialing *dialing, struct sdr_qp **qp);

/**
 * Frees a connection attempt; one under way is given up. NULL is allowed.
 *
 * # Safety
 * `dialing` is NULL or a handle that nobody uses any more; afterwards it is gone.
 */
enum sdr_result sdr_dial_free(struct sdr_dialing *dialing);

/**
 * Takes a client that dials this context, with the attributes that it asks for; `SDR_RETRY` while there is none.
 *
 * `SDR_ERROR` when its wishes cannot be met; it was told why, and the next call goes on with the next client.
 *
 * # Safety
 * `context` is NULL (an error) or a handle, `qp` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_accept(struct sdr_context *context,
                           struct sdr_qp **qp);

/**
 * Posts a receive: the n-th one takes the peer's n-th send.
 *
 * `SDR_RETRY` while the slot that it needs may still be written by an older message. The handle is freed by
 * `sdr_recv_free`.
 *
 * # Safety
 * `qp` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an error) or a
 * handle. Until `sdr_recv_poll` says that the memory is back, or the memory was given back, the bytes are not written nor
 * posted again, and only chunks that the bitmap shows as arrived are read. `recv` is NULL (an error) or valid for a
 * write.
 */
enum sdr_result sdr_recv_post(struct sdr_qp *qp,
                              const struct sdr_recv_wr *wr,
                              struct sdr_recv **recv);

/**
 * The chunk bitmap: `length` bytes in host memory, one for each chunk, 0 until all packets of the chunk have arrived and
 * then 1. A chunk is `packets_per_chunk` times `sdr_qp_state.payload` bytes of the buffer; the last may be shorter.
 *
 * Poll the bytes directly. They are written inside `sdr_poll` and the waiting calls; a thread that makes no such call
 * reads them with acquire order (`atomic_load_explicit`, `__atomic_load_n`) before it reads the chunk. They stay where
 * they are until `sdr_recv_free`, and mean nothing after `sdr_recv_complete`. A message shorter than the receive fills
 * only the chunks that it covers in full.
 *
 * ```c
 * const uint8_t *chunks;
 * size_t length, i;
 * sdr_recv_bitmap_get(recv, &chunks, &length);
 * for (i = 0; i < length; i++)
 *     while (!chunks[i])
 *         sdr_poll(context);
 * ```
 *
 * # Safety
 * `recv` is NULL (an error) or a handle; `bitmap` and `length` are NULL (an error) or valid for a write. The bytes are
 * only read, and not after `sdr_recv_free`.
 */
enum sdr_result sdr_recv_bitmap_get(const struct sdr_recv *recv,
                                    const uint8_t **bitmap,
                                    size_t *length);

/**
 * Which packets of one chunk have arrived: bit i of `packets` is packet i of chunk number `chunk`. May cost a round trip to
 * a device.
 *
 * # Safety
 * `recv` is NULL (an error) or a handle, `packets` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_recv_bitmap_chunk_expand(const struct sdr_recv *recv,
                                             size_t chunk,
                                             uint64_t *packets);

/**
 * The sender's immediate, once the packets that carry it have arrived; `SDR_RETRY` before. It is 0 when the sender gave
 * none.
 *
 * # Safety
 * `recv` is NULL (an error) or a handle, `imm` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_recv_imm_get(const struct sdr_recv *recv,
                                 uint32_t *imm);

/**
 * Ends a receive, at any time, also before everything has arrived. Call `sdr_recv_poll` to learn when its memory is back.
 *
 * # Safety
 * `recv` is NULL (an error) or a handle.
 */
enum sdr_result sdr_recv_complete(struct sdr_recv *recv);

/**
 * Whether a completed receive has its memory back: no packet, however late, changes it from then on. `SDR_RETRY` before.
 *
 * `SDR_ERROR` when that could not be confirmed in time: the memory is in use until the queue pair is destroyed.
 *
 * # Safety
 * `recv` is NULL (an error) or a handle.
 */
enum sdr_result sdr_recv_poll(struct sdr_recv *recv);

/**
 * Frees the handle of a receive; one that was not completed is completed by that. NULL is allowed.
 *
 * Without `sdr_recv_poll` before, the memory may be in use for a while longer; `sdr_mr_dereg` knows.
 *
 * # Safety
 * `recv` is NULL or a handle that nobody uses any more; afterwards it is gone, and its bitmap with it.
 */
enum sdr_result sdr_recv_free(struct sdr_recv *recv);

/**
 * Posts a whole message; it goes to the peer's next posted receive, at its beginning.
 *
 * `SDR_RETRY` until the peer's receive is known here. With an immediate the message needs at least 8 packets, 16 with
 * `SDR_LAYOUT_8_22_2`. The handle is freed by `sdr_send_free`.
 *
 * # Safety
 * `qp` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an error) or a
 * handle; the bytes are not written until `sdr_send_poll` answers `SDR_SUCCESS`, the queue pair was destroyed, or the
 * memory was given back. `send` is NULL (an error) or valid for a write.
 */
enum sdr_result sdr_send_post(struct sdr_qp *qp,
                              const struct sdr_send_wr *wr,
                              struct sdr_send **send);

/**
 * Opens a message whose packets are added by `sdr_send_stream_continue`, at any offset, any number of times.
 *
 * `SDR_RETRY` until the peer's receive is known here. The handle is freed by `sdr_send_free`.
 *
 * ```c
 * sdr_stream_wr start = {.length = 3 * payload};
 * while ((r = sdr_send_stream_start(qp, &start, &send)) == SDR_RETRY)
 *     sdr_poll(context);
 * sdr_stream_part_wr part = {.mr = mr, .local_addr = bytes + payload, .length = payload, .remote_offset = payload};
 * r = sdr_send_stream_continue(send, &part);
 * r = sdr_send_stream_end(send);
 * ```
 *
 * # Safety
 * `qp` is NULL (an error) or a handle, `wr` is NULL (an error) or points to a request, `send` is NULL (an error) or valid
 * for a write.
 */
enum sdr_result sdr_send_stream_start(struct sdr_qp *qp,
                                      const struct sdr_stream_wr *wr,
                                      struct sdr_send **send);

/**
 * Adds packets to a stream. `SDR_RETRY` while too many wait for the NIC.
 *
 * `SDR_ERROR` also when the receiver has completed the receive: end the stream then.
 *
 * # Safety
 * `send` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request as `sdr_send_post` has it.
 */
enum sdr_result sdr_send_stream_continue(struct sdr_send *send,
                                         const struct sdr_stream_part_wr *wr);

/**
 * Ends a stream: no packets are added any more. It is an error, and the stream goes on, when it has an immediate and not
 * the packets to carry it.
 *
 * # Safety
 * `send` is NULL (an error) or a handle.
 */
enum sdr_result sdr_send_stream_end(struct sdr_send *send);

/**
 * Where a send stands: `SDR_SUCCESS` once the memory is free again, `SDR_RETRY` before, `SDR_ERROR` when the queue pair
 * closed first. Nothing here means delivered. `state` may be NULL; it is written with every answer but for NULL handles.
 *
 * # Safety
 * `send` is NULL (an error) or a handle, `state` is NULL or valid for a write.
 */
enum sdr_result sdr_send_poll(const struct sdr_send *send,
                              enum sdr_send_state *state);

/**
 * Frees the handle of a send. NULL is allowed.
 *
 * A message that was posted or ended goes on without it. An open stream ends, and what still waits for the NIC is
 * dropped.
 *
 * # Safety
 * `send` is NULL or a handle that nobody uses any more; afterwards it is gone.
 */
enum sdr_result sdr_send_free(struct sdr_send *send);

/**
 * Why the last call of this thread that did not succeed did not: the call's name and one line for a person.
 *
 * Never null; empty when every call succeeded. The text is the library's, and stays until the next call of this thread
 * that does not succeed.
 */
const char *sdr_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SDR_H */
