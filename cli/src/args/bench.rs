//! What `sdr bench` and its neighbours over the network were given.

use super::flows::Congestion;
use super::{mtu_up_to, positive_duration, whole};
use crate::bench::MAX_MTU;
use crate::ends::{MAX_CHANNELS, PORT};
use clap::{Args, Subcommand, ValueEnum};
use netem::PathSpec;
use netem::units::{BitRate, ByteSize, Duration};

/// What carries the packets of `sdr bench loopback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fabric {
    /// Sockets on the loopback device.
    Udp,
    /// Queues in memory.
    Memory,
}

impl Fabric {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Memory => "memory",
        }
    }
}

/// The commands of `sdr bench`.
#[derive(Subcommand, Clone)]
pub enum BenchCommand {
    /// Both ends here
    #[command(after_help = LOOPBACK_EXAMPLES)]
    Loopback(LoopbackArgs),
    /// The end that clients on other hosts connect to
    Server(ServerArgs),
    /// The end that says what is measured, against a server
    #[command(after_help = CLIENT_EXAMPLES)]
    Client(ClientArgs),
}

/// `sdr bench loopback`.
#[derive(Args, Clone)]
pub struct LoopbackArgs {
    /// What carries the packets
    #[arg(long, value_name = "NAME", default_value = "udp")]
    pub fabric: Fabric,
    #[command(flatten)]
    pub bench: BenchArgs,
}

/// `sdr bench client`.
#[derive(Args, Clone)]
pub struct ClientArgs {
    /// Where the server listens: host, or host:port
    #[arg(value_name = "ADDR")]
    pub server: String,
    #[command(flatten)]
    pub bench: BenchArgs,
}

/// `sdr bench server`.
#[derive(Args, Clone)]
pub struct ServerArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value_t = format!("0.0.0.0:{PORT}"))]
    pub listen: String,
    /// End after one client
    #[arg(short = '1', long = "one")]
    pub once: bool,
}

/// What is measured, and how.
#[derive(Args, Clone)]
pub struct BenchArgs {
    /// An emulated link in front of the server, such as rtt=25ms,rate=2Gbit,loss=1e-3,burst=4 or a TOML file with these keys; in a process of its own: sdr emulate
    #[arg(long, value_name = "SPEC", value_parser = crate::link::parse)]
    pub link: Option<PathSpec>,
    /// Reliability scheme
    #[arg(long, value_name = "NAME", default_value = "sr")]
    pub scheme: String,
    /// Message length [default: 8MiB]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<ByteSize>,
    /// Messages on each connection and direction
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1..=MAX_COUNT))]
    pub count: Option<u64>,
    /// Send for this long instead [default: 10s; with -a 1s a size]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,
    /// Messages under way at a time on each connection [default: 1]
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1..=256))]
    pub inflight: Option<u64>,
    /// Channels that packets are spread over, each a flow of its own to routers
    #[arg(long, value_name = "N", default_value = "4", value_parser = |s: &str| whole(s, 1..=MAX_CHANNELS.into()))]
    pub channels: u64,
    /// Bytes of a chunk, the unit that a receiver sees arrive; rounded down to whole packets, 1 to 64
    #[arg(long, value_name = "BYTES", default_value = "64KiB")]
    pub chunk: ByteSize,
    /// Largest payload of a packet [default: what the path takes, 8KiB at most]
    #[arg(long, value_name = "BYTES", value_parser = |s: &str| mtu_up_to(s, MAX_MTU))]
    pub mtu: Option<ByteSize>,
    /// Contents of the messages follow from it; the link has a seed of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = |s: &str| whole(s, 0..=u64::MAX))]
    pub seed: u64,
    /// Pace of all connections together, headers included [default: the link's rate; without one as fast as it goes]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,
    /// How fast to send: fixed, at the pace; or delay, as fast as the path takes it with a short queue, at most at --rate
    #[arg(long, value_name = "NAME", default_value = "fixed")]
    pub congestion: Congestion,
    /// Messages on each connection and direction before measuring
    #[arg(long, value_name = "N", default_value = "1", value_parser = |s: &str| whole(s, 0..=MAX_COUNT))]
    pub warmup: u64,
    /// Do not check what arrives
    #[arg(long)]
    pub no_verify: bool,
    /// Show latency: one message at a time, perftest's latency columns
    #[arg(long)]
    pub lat: bool,
    /// All sizes from 2 B to 8 MiB
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Both ends send
    #[arg(short = 'b', long)]
    pub bidirectional: bool,
    /// The server sends
    #[arg(short = 'R', long)]
    pub reverse: bool,
    /// Connections
    #[arg(short = 'P', long, value_name = "N", default_value = "1", value_parser = |s: &str| whole(s, 1..=64))]
    pub parallel: u64,
    /// Record what passed in each interval of this length, such as 1s
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub interval: Option<Duration>,
    /// Print one JSON document instead of the table; with -a a list of them
    #[arg(long)]
    pub json: bool,
}

/// `sdr emulate`.
#[derive(Args, Clone)]
pub struct EmulateArgs {
    /// Where clients send to; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub listen: String,
    /// The server behind the link
    #[arg(long, value_name = "ADDR")]
    pub forward: String,
    /// The link, both directions alike, such as rtt=25ms,rate=2Gbit,loss=1e-3,burst=4, or a TOML file with these keys
    #[arg(long, value_name = "SPEC", value_parser = crate::link::parse)]
    pub link: PathSpec,
    /// End after this [default: Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `sdr info`.
#[derive(Args, Clone)]
pub struct InfoArgs {
    /// Print one JSON document instead of the list
    #[arg(long)]
    pub json: bool,
}

/// Two weeks of 64 B messages.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// What the table counts; both commands that show it explain it.
macro_rules! columns {
    () => {
        "\
Packets of the measured messages:
  #received     everything that came, copies included
  #lost         dropped by the link or its queue, control too; without a link sent - received
  #duplicate    came for a message under way that had it already
  #late         came for a message that had ended: copies that were sent again too early
  #corrupt      had a wrong checksum
  #local_drops  found no room in a socket's buffer: this host was too slow, not the link
'unknown' is what the other side could not tell any more.
"
    };
}

const LOOPBACK_EXAMPLES: &str = concat!(
    "\
Examples:
  sdr bench loopback --count 100
  sdr bench loopback --link rtt=10ms,rate=1Gbit,loss=1e-3 --size 8MiB --count 50 --json
  sdr bench loopback --size 64KiB --inflight 16 --duration 5s
  sdr bench loopback --lat -a --duration 500ms

A message is timed from the call that sends it until the sender knows that all of it arrived.
slowdown = time / (RTT + bytes / rate), the lossless bound; with more than one in flight messages wait for each other.

",
    columns!(),
    "
Corrupt or failed messages give exit code 1. Ctrl-C ends with what was measured (exit code 130)."
);

const CLIENT_EXAMPLES: &str = concat!(
    "\
Examples, with 'sdr bench server' on the other host:
  sdr bench client 192.0.2.7 --size 64MiB --rate 9Gbit --inflight 4 --duration 30s --interval 1s
  sdr bench client 192.0.2.7 -R -P 4 --rate 9Gbit

",
    columns!(),
    "
Choose --rate below what the path carries, or --congestion delay, which finds it.
Corrupt or failed messages give exit code 1. Ctrl-C ends with what was measured (exit code 130)."
);
