use super::*;
use crate::fabric::soft::wire::{PacketType, parse};
use std::collections::BTreeMap;

const MS: Nanos = Nanos::from_millis(1);
const SERVER: usize = 0;
/// Lost frames, copies and late ones: when each arrives after it was sent.
type Fate = dyn FnMut(&Flight) -> Vec<Nanos>;

struct Flight {
    from: usize,
    kind: Option<PacketType>,
    len: usize,
    /// Frames of this kind that its sender sent before.
    before: usize,
}

/// Ends in virtual time; end 0 is the server.
struct Rig {
    ends: Vec<Handshake>,
    at: Vec<SocketAddr>,
    now: Nanos,
    flying: BTreeMap<(Nanos, u64), (usize, SocketAddr, Vec<u8>)>,
    sent: BTreeMap<(usize, u8), usize>,
    order: u64,
    fate: Box<Fate>,
    /// What the server does with who comes: takes him with these bytes, or refuses him.
    policy: Result<Vec<u8>, String>,
    served: Vec<Incoming>,
}

impl Rig {
    fn new(clients: usize, fate: impl FnMut(&Flight) -> Vec<Nanos> + 'static) -> Self {
        let ends = (0..=clients).map(|_| Handshake::new(RandomState::new())).collect();
        let at = (0..=clients).map(|i| ([10, 0, 0, i as u8], 7000).into()).collect();
        Self {
            ends,
            at,
            now: Nanos::from_secs(3),
            flying: BTreeMap::new(),
            sent: BTreeMap::new(),
            order: 0,
            fate: Box::new(fate),
            policy: Ok(b"server's info".to_vec()),
            served: Vec::new(),
        }
    }

    fn send(&mut self, from: usize, replies: Vec<Reply>) {
        for r in replies {
            let (_, to, bytes) = r.frame();
            let Some(end) = self.at.iter().position(|a| *a == to) else { continue };
            let before = self.sent.entry((from, bytes[0] & 0xf)).or_default();
            let kind = parse(&bytes).ok().map(|(h, _)| h.kind);
            let flight = Flight { from, kind, len: bytes.len(), before: *before };
            *before += 1;
            for delay in (self.fate)(&flight) {
                self.order += 1;
                self.flying.insert((self.now + delay, self.order), (end, self.at[from], bytes.clone()));
            }
        }
    }

    fn hand_over(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) -> Vec<Reply> {
        let mut replies = Vec::new();
        let (h, payload) = parse(bytes).unwrap();
        self.ends[end].receive(self.now, Channel(0), from, &h, payload, &mut replies);
        replies
    }

    /// One event; false when nothing will ever happen.
    fn step(&mut self) -> bool {
        let due =
            self.ends.iter().filter_map(Handshake::wake_at).chain(self.flying.keys().map(|k| k.0)).min();
        let Some(due) = due else { return false };
        self.now = self.now.max(due);
        while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
            let (end, from, bytes) = entry.remove();
            let replies = self.hand_over(end, from, &bytes);
            self.send(end, replies);
        }
        for end in 0..self.ends.len() {
            let mut replies = Vec::new();
            self.ends[end].drive(self.now, &mut replies);
            while let Some(incoming) = (end == SERVER).then(|| self.ends[end].take_incoming()).flatten() {
                self.ends[end].answer(&incoming, self.policy.clone(), &mut replies);
                self.served.push(incoming);
            }
            self.send(end, replies);
        }
        true
    }

    /// Dials from `client`, and goes on to the result: the payload size and the server's info.
    fn connect(&mut self, client: usize) -> (Nanos, Option<u32>, Result<Vec<u8>, DialError>) {
        let start = self.now;
        let id = self.ends[client].dial(self.at[SERVER]).unwrap();
        let (mut payload, mut said) = (None, false);
        loop {
            let end = &mut self.ends[client];
            match end.payload(id) {
                Some(Ok(p)) if !said => {
                    (payload, said) = (Some(p), true);
                    end.hello(id, b"client's info".to_vec());
                }
                _ => {}
            }
            if let Some((to, result)) = end.result(id) {
                assert_eq!(to, self.at[SERVER]);
                return (self.now.since(start), payload, result);
            }
            assert!(self.step(), "nothing is due, and there is no result");
        }
    }
}

fn good(rig: &mut Rig, client: usize) -> (Nanos, u32) {
    let (took, payload, result) = rig.connect(client);
    assert_eq!(result, Ok(b"server's info".to_vec()));
    (took, payload.unwrap())
}

/// 10 ms each way, and frames above `mtu` are lost.
fn path(mtu: usize) -> impl FnMut(&Flight) -> Vec<Nanos> + 'static {
    move |f| if f.len + 28 > mtu { vec![] } else { vec![MS.mul_div(10, 1)] }
}

#[test]
fn each_frame_lost_one_to_ten_times() {
    use PacketType::{Accept, Hello, Probe, ProbeAck, Retry};
    for kind in [Probe, ProbeAck, Hello, Retry, Accept] {
        for lost in 0..=10 {
            // All sizes of a round count as one loss.
            let sizes = if matches!(kind, Probe | ProbeAck) { PAYLOADS.len() } else { 1 };
            let mut path = path(10_000);
            let mut rig =
                Rig::new(
                    1,
                    move |f| {
                        if f.kind == Some(kind) && f.before < lost * sizes { vec![] } else { path(f) }
                    },
                );
            let (took, payload, result) = rig.connect(1);
            if lost <= 4 {
                assert_eq!(
                    (payload, &result),
                    (Some(8192), &Ok(b"server's info".to_vec())),
                    "{kind:?} {lost}"
                );
            }
            match result {
                Ok(_) => assert_eq!(rig.served.len(), 1),
                Err(DialError::NoAnswer { waited, .. }) => assert!(lost > 8 && waited <= CONNECT_DEADLINE),
                Err(e) => panic!("{kind:?} {lost}: {e}"),
            }
            assert!(took <= CONNECT_DEADLINE, "{kind:?} lost {lost} times: {took}");
        }
    }
}

#[test]
fn copies_and_any_order() {
    for seed in 0..200u64 {
        let mut n = seed;
        let mut rig = Rig::new(1, move |_| {
            let mut draw = || {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                MS.mul_div(20 + (n >> 33) % 80, 1)
            };
            vec![draw(), draw(), draw()]
        });
        let (_, payload) = good(&mut rig, 1);
        assert_eq!(payload, 8192, "seed {seed}");
        while rig.step() {}
        assert_eq!(rig.served.len(), 1, "seed {seed}: served once");
        assert_eq!(rig.served[0].info, b"client's info");
    }
}

#[test]
fn the_largest_payload_that_passes_is_found() {
    for (mtu, expected) in
        [(1280, 1152), (1500, 1408), (4200, 4096), (4159, 1408), (9000, 8192), (8255, 4096), (65_535, 8192)]
    {
        let mut rig = Rig::new(1, path(mtu));
        let (took, payload) = good(&mut rig, 1);
        assert_eq!(payload, expected, "MTU {mtu}");
        assert!(took <= MS.mul_div(200, 1), "MTU {mtu}: {took}");
        // Only the way back is narrow.
        let mut wide = path(65_535);
        let mut narrow = path(mtu);
        let mut rig = Rig::new(1, move |f| if f.from == SERVER { narrow(f) } else { wide(f) });
        assert_eq!(good(&mut rig, 1).1, expected, "MTU {mtu} on the way back");
    }
    // A third is lost each way: what passes is found all the same, within the time of a long path.
    for (mtu, expected) in [(9_000, 8192), (4_200, 4096)] {
        let (mut less, mut longest) = (0, Nanos::ZERO);
        for seed in 0..1_000u64 {
            let mut n = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut path = path(mtu);
            let mut rig = Rig::new(1, move |f| {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (n >> 32) * 10 < 3 << 32 { vec![] } else { path(f) }
            });
            let (took, payload) = good(&mut rig, 1);
            assert!(payload <= expected);
            less += u32::from(payload < expected);
            longest = longest.max(took);
        }
        println!("MTU {mtu}: less than passes {less} times in 1000, at most {longest}");
        assert!(less <= 8 && longest <= Nanos::from_secs(4));
    }
    // Half of everything is lost: less payload may be found, never more than passes.
    for seed in 0..100u64 {
        let mut n = seed;
        let mut path = path(4200);
        let mut rig = Rig::new(1, move |f| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if n >> 63 == 1 { vec![] } else { path(f) }
        });
        let (_, payload) = good(&mut rig, 1);
        assert!([1152, 1408, 4096].contains(&payload));
    }
}

#[test]
fn a_long_path_is_asked_no_more_than_it_must() {
    let mut rig = Rig::new(1, |f| if f.len > 1500 { vec![] } else { vec![MS.mul_div(300, 1)] });
    let (took, payload) = good(&mut rig, 1);
    assert_eq!(payload, 1408);
    assert!(took <= MS.mul_div(4_500, 1), "{took}");
    assert!(rig.sent[&(1, PacketType::Probe as u8)] <= 30, "{:?}", rig.sent);
}

#[test]
fn no_answer_ends_within_ten_seconds() {
    let mut rig = Rig::new(1, |_| vec![]);
    let (took, _, result) = rig.connect(1);
    assert_eq!(took, CONNECT_DEADLINE);
    assert_eq!(result, Err(DialError::NoAnswer { to: rig.at[0], waited: CONNECT_DEADLINE }));
    // Probes pass, HELLO does not.
    let mut path = path(9_000);
    let mut rig = Rig::new(1, move |f| if f.kind == Some(PacketType::Hello) { vec![] } else { path(f) });
    let (took, payload, result) = rig.connect(1);
    assert_eq!((took, payload), (CONNECT_DEADLINE, Some(8192)));
    assert!(matches!(result, Err(DialError::NoAnswer { .. })));
    assert_eq!(rig.ends[1].wake_at(), None);
}

#[test]
fn who_is_refused_learns_why() {
    let mut rig = Rig::new(1, path(1280));
    rig.policy = Err("payload bytes a packet is 4096 here and 1024 at the peer".repeat(40));
    let (_, _, result) = rig.connect(1);
    match result {
        Err(DialError::Refused { to, why }) => {
            assert_eq!(to, rig.at[0]);
            assert!(why.starts_with("payload bytes a packet is 4096 here") && why.len() > 1000);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_behind_one_address_are_told_apart() {
    let mut rig = Rig::new(2, path(9_000));
    rig.at[2] = rig.at[1];
    // Frames for the address reach both, as two queue pairs of one NIC share a socket.
    let one = rig.ends[1].dial(rig.at[0]).unwrap();
    let two = rig.ends[1].dial(rig.at[0]).unwrap();
    assert_ne!(one, two);
    for id in [one, two] {
        while rig.ends[1].payload(id).is_none() {
            rig.step();
        }
        rig.ends[1].hello(id, format!("{id:?}").into_bytes());
    }
    while rig.step() {}
    assert_eq!(rig.served.len(), 2);
    assert_ne!(rig.served[0].info, rig.served[1].info);
    // A process that starts again on the same port is somebody new.
    rig.ends[1] = Handshake::new(RandomState::new());
    good(&mut rig, 1);
    assert_eq!(rig.served.len(), 3);
}

#[test]
fn a_server_that_starts_again_takes_old_clients() {
    // The cookie of the first life is worth nothing to the second: a new one is given at once.
    let mut path = path(9_000);
    let mut rig =
        Rig::new(
            1,
            move |f| if f.kind == Some(PacketType::Accept) && f.before < 2 { vec![] } else { path(f) },
        );
    let id = rig.ends[1].dial(rig.at[0]).unwrap();
    while rig.ends[1].payload(id).is_none() {
        rig.step();
    }
    rig.ends[1].hello(id, b"client's info".to_vec());
    while rig.served.is_empty() {
        rig.step();
    }
    rig.ends[SERVER] = Handshake::new(RandomState::new());
    while rig.ends[1].result(id).is_none() {
        assert!(rig.step());
    }
    assert_eq!(rig.served.len(), 2);
}

fn frame(r: &Reply) -> Vec<u8> {
    r.frame().2
}

/// The cookie that the server gives for a HELLO.
fn cookie_for(rig: &mut Rig, from: SocketAddr, nonce: u64) -> u64 {
    let asked = frame(&hello(rig.at[0], nonce, 0, b"info"));
    let replies = rig.hand_over(SERVER, from, &asked);
    let (h, payload) = parse(&frame(&replies[0])).map(|(h, p)| (h, p.to_vec())).unwrap();
    assert_eq!((replies.len(), h.kind, h.token), (1, PacketType::Retry, nonce));
    u64::from_be_bytes(payload.try_into().unwrap())
}

#[test]
fn cookies_are_for_one_address_one_nonce_and_some_seconds() {
    let mut rig = Rig::new(1, path(9_000));
    let (me, other) = (rig.at[1], rig.at[0]);
    let cookie = cookie_for(&mut rig, me, 5);
    let kind = |rig: &mut Rig, from, nonce, cookie| {
        let bytes = frame(&hello(rig.at[0], nonce, cookie, b"info"));
        rig.hand_over(SERVER, from, &bytes).first().map(|r| parse(&frame(r)).unwrap().0.kind)
    };
    for (from, nonce, cookie) in [(other, 5, cookie), (me, 6, cookie), (me, 5, cookie ^ 2), (me, 5, 1)] {
        assert_eq!(kind(&mut rig, from, nonce, cookie), Some(PacketType::Retry));
    }
    assert!(rig.ends[SERVER].answers.is_empty() && rig.ends[SERVER].incoming.is_empty());
    rig.now += Nanos::from_secs(9);
    assert_eq!(kind(&mut rig, me, 5, cookie), None, "taken");
    assert_eq!(rig.ends[SERVER].incoming.len(), 1);
    rig.now += Nanos::from_secs(21);
    assert_eq!(kind(&mut rig, me, 5, cookie), Some(PacketType::Retry), "expired");
}

/// A recorded HELLO, played again as long as its cookie is good, does not make a second client.
#[test]
fn a_hello_played_again_is_answered_but_not_served_again() {
    let mut rig = Rig::new(1, path(9_000));
    let me = rig.at[1];
    let cookie = cookie_for(&mut rig, me, 5);
    let bytes = frame(&hello(rig.at[0], 5, cookie, b"info"));
    for _ in 0..300 {
        let replies = rig.hand_over(SERVER, me, &bytes);
        rig.send(SERVER, replies);
        let mut replies = Vec::new();
        rig.ends[SERVER].drive(rig.now, &mut replies);
        while let Some(i) = rig.ends[SERVER].take_incoming() {
            rig.ends[SERVER].answer(&i, Ok(b"x".to_vec()), &mut replies);
            rig.served.push(i);
        }
        rig.now += MS.mul_div(100, 1);
    }
    assert_eq!(rig.served.len(), 1);
}

#[test]
fn memory_is_bounded() {
    let mut rig = Rig::new(1, path(9_000));
    let server = |rig: &mut Rig| {
        let mut replies = Vec::new();
        rig.ends[SERVER].drive(rig.now, &mut replies);
        (rig.ends[SERVER].answers.len(), rig.ends[SERVER].incoming.len())
    };
    let stranger = |i: u32| SocketAddr::from(((0x0b00_0000 + i).to_be_bytes(), 1));
    for i in 0..10_000 {
        cookie_for(&mut rig, stranger(i), 1);
        rig.now += MS;
    }
    assert_eq!(server(&mut rig), (0, 0), "nothing for a HELLO without a cookie");
    // Nobody takes them, for minutes.
    for i in 0..40_000u32 {
        let cookie = cookie_for(&mut rig, stranger(i), 1);
        let bytes = frame(&hello(rig.at[0], 1, cookie, &[0; 1_000]));
        rig.hand_over(SERVER, stranger(i), &bytes);
        rig.now += MS.mul_div(3, 1);
        let (answers, incoming) = server(&mut rig);
        assert!(answers <= MOST && incoming <= MOST, "{answers} answers, {incoming} waiting after {i}");
    }
    // Who waited too long has given up: the user does not see him.
    rig.now += CONNECT_DEADLINE;
    assert!(server(&mut rig).1 > 0);
    assert!(rig.ends[SERVER].take_incoming().is_none());
    rig.now += Nanos::from_secs(30);
    assert_eq!(server(&mut rig), (0, 0));
    // What is not a HELLO's length is none.
    let cookie = cookie_for(&mut rig, stranger(1), 9);
    for long in [1_200, 60_000] {
        let bytes = frame(&hello(rig.at[0], 9, cookie, &vec![0; long]));
        assert!(rig.hand_over(SERVER, stranger(1), &bytes).is_empty());
    }
    assert_eq!(server(&mut rig), (0, 0));
    let to = rig.at[0];
    for _ in 0..MOST_DIALS {
        rig.ends[1].dial(to).unwrap();
    }
    assert_eq!(rig.ends[1].dial(to), Err(DialError::TooMany));
}

/// Every type and every size: what goes back to a stranger is never more bytes than what he sent.
#[test]
fn never_more_bytes_out_than_in() {
    let mut rig = Rig::new(1, path(9_000));
    let me = rig.at[1];
    let cookie = cookie_for(&mut rig, me, 5);
    rig.policy = Err("x".repeat(5_000));
    for kind in PacketType::ALL {
        for size in (0..200).chain([500, 1_152, 1_163, 1_164, 1_165, 1_408, 8_192, 60_000]) {
            for content in [
                vec![0; size],
                frame(&hello(me, 5, 0, b"i"))[HEADER..].to_vec(),
                frame(&hello(me, 5, cookie, b"i"))[HEADER..].to_vec(),
            ] {
                let mut bytes = vec![0; HEADER];
                let mut content = content;
                content.resize(size, 0);
                template(kind, 0, 5, 0).write((&mut bytes[..]).try_into().unwrap(), &content);
                bytes.extend(&content);
                let mut replies = rig.hand_over(SERVER, me, &bytes);
                while let Some(i) = rig.ends[SERVER].take_incoming() {
                    let policy = rig.policy.clone();
                    rig.ends[SERVER].answer(&i, policy, &mut replies);
                }
                let out: usize = replies.iter().map(|r| frame(r).len()).sum();
                assert!(out <= bytes.len(), "{kind:?} of {size}: {} in, {out} out", bytes.len());
                assert!(replies.iter().all(|r| r.frame().1 == me));
            }
        }
    }
}

#[test]
fn another_version_is_named_on_both_sides() {
    let mut rig = Rig::new(1, path(9_000));
    let me = rig.at[1];
    // A HELLO of a version to come: nobody here knows its checksum or what is inside.
    let mut bytes = frame(&hello(rig.at[0], 77, 0, b"info"));
    bytes[0] = 9 << 4 | bytes[0] & 0xf;
    let mut replies = Vec::new();
    rig.ends[SERVER].other_version(Channel(0), me, &bytes, &mut replies);
    let answer = frame(&replies[0]);
    assert!(replies.len() == 1 && answer.len() <= bytes.len());
    let (h, _) = parse(&answer).unwrap();
    assert_eq!(h.token, 77, "the client finds its attempt by it");
    for kind in 1..16 {
        let mut replies = Vec::new();
        let mut other = bytes.clone();
        other[0] = 9 << 4 | kind;
        let asks = [PacketType::Hello as u8, PacketType::Probe as u8].contains(&kind);
        other.truncate(if asks { SMALLEST - 1 } else { 1_200 });
        rig.ends[SERVER].other_version(Channel(0), me, &other, &mut replies);
        assert!(replies.is_empty(), "only a whole PROBE or HELLO is answered");
    }

    // And the other way round: our HELLO is answered in a version that we do not speak.
    let id = rig.ends[1].dial(rig.at[0]).unwrap();
    while rig.ends[1].payload(id).is_none() {
        rig.step();
    }
    let mut answer = frame(&replies_to(id, rig.at[1]));
    answer[0] = 2 << 4 | answer[0] & 0xf;
    let to = rig.at[0];
    rig.ends[1].other_version(Channel(0), me, &answer, &mut replies);
    assert!(rig.ends[1].result(id).is_none(), "from elsewhere");
    rig.ends[1].other_version(Channel(0), to, &answer, &mut replies);
    assert_eq!(rig.ends[1].result(id), Some((to, Err(DialError::Version { to, ours: 1, theirs: 2 }))));
    assert_eq!(replies.len(), 1, "no answer to an answer");
}

fn replies_to(DialId(nonce): DialId, to: SocketAddr) -> Reply {
    Reply::new(Channel(0), to, &template(PacketType::Retry, 0, nonce, 0), vec![0; 8])
}
