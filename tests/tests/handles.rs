//! Dropping, forgetting, polling and waking of every handle, in every state, in virtual time.
//!
//! | module | what it shows |
//! |---|---|
//! | `world` | two ends over the simulated fabric, with counters of what they hold |
//! | `futures` | each future polled n times, then dropped or forgotten |
//! | `matrix` | every handle, dropped and forgotten, in every state |
//! | `wakers` | who is woken, how often, and what a waker may do |
//! | `threads` | futures awaited on another thread |
//! | `refusals` | each error once, with the buffer back |
//! | `immediates` | user immediates of the queue pair |
//! | `extra` | receives with memory for packets behind the data |
//! | `partial` | early completion: bitmaps and bytes |

#[path = "handles/extra.rs"]
mod extra;
#[path = "handles/futures.rs"]
mod futures;
#[path = "handles/immediates.rs"]
mod immediates;
#[path = "handles/matrix.rs"]
mod matrix;
#[path = "handles/partial.rs"]
mod partial;
#[path = "handles/refusals.rs"]
mod refusals;
#[path = "handles/threads.rs"]
mod threads;
#[path = "handles/wakers.rs"]
mod wakers;
#[path = "handles/world.rs"]
mod world;
