//! Foreign code that panics: schemes and wakers.

use netem::{Pair, SimNet};
use sdr_sdk::connection::{
    Connection, ConnectionConfig, ConnectionDriver, RecvResult, SendResult, Transfer, TransferError,
};
use sdr_sdk::context::{Context, ContextConfig, QpConfig};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::reliability::{
    Conditions, MessageSpec, Outcome, Plan, PlanError, Say, Scheme, SchemeReceiver, SchemeSender,
    SelectiveRepeat, SendRun, Status, View,
};
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{PACKET, RTT, SimBed as Bed, usual};
use std::borrow::Cow;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

/// Calls of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    NewSender,
    NewReceiver,
    Next,
    OnStatus,
    SenderWakeAt,
    OnProgress,
    Report,
    Reported,
}

const CALLS: [Call; 8] = [
    Call::NewSender,
    Call::NewReceiver,
    Call::Next,
    Call::OnStatus,
    Call::SenderWakeAt,
    Call::OnProgress,
    Call::Report,
    Call::Reported,
];

/// Selective Repeat that panics in the n-th of a call.
#[derive(Clone)]
struct Bomb {
    call: Call,
    left: Arc<AtomicU32>,
}

impl Bomb {
    fn check(&self, call: Call) {
        if call == self.call && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("bomb in {call:?}");
        }
    }
}

struct With<T: ?Sized> {
    bomb: Bomb,
    inner: Box<T>,
}

impl Scheme for Bomb {
    fn name(&self) -> Cow<'static, str> {
        "bomb".into()
    }
    fn wire_id(&self) -> u8 {
        SelectiveRepeat::default().wire_id()
    }
    fn sender(&self, m: &MessageSpec, c: &Conditions) -> Box<dyn SchemeSender> {
        self.check(Call::NewSender);
        Box::new(With { bomb: self.clone(), inner: SelectiveRepeat::default().sender(m, c) })
    }
    fn receiver(
        &self,
        m: &MessageSpec,
        plan: &Plan,
        c: &Conditions,
    ) -> Result<Box<dyn SchemeReceiver>, PlanError> {
        self.check(Call::NewReceiver);
        let inner = SelectiveRepeat::default().receiver(m, plan, c)?;
        Ok(Box::new(With { bomb: self.clone(), inner }))
    }
}

impl SchemeSender for With<dyn SchemeSender> {
    fn on_status(&mut self, now: Nanos, status: &Status<'_>, c: &Conditions) {
        self.bomb.check(Call::OnStatus);
        self.inner.on_status(now, status, c);
    }
    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        self.bomb.check(Call::Next);
        self.inner.next(now, budget, c)
    }
    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        self.bomb.check(Call::SenderWakeAt);
        self.inner.wake_at(c)
    }
}

impl SchemeReceiver for With<dyn SchemeReceiver> {
    fn on_progress(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) -> Outcome {
        self.bomb.check(Call::OnProgress);
        self.inner.on_progress(now, v, c)
    }
    fn report<'a>(&'a mut self, now: Nanos, v: &View<'a>, c: &Conditions, part: u32) -> Option<Say<'a>> {
        self.bomb.check(Call::Report);
        self.inner.report(now, v, c, part)
    }
    fn reported(&mut self, to: u32) {
        self.bomb.check(Call::Reported);
        self.inner.reported(to);
    }
}

/// Two connections between the same two contexts; end 0 of the first has the bomb.
struct Two {
    net: SimNet,
    contexts: [Context; 2],
    connections: [[Connection; 2]; 2],
    drivers: [[ConnectionDriver; 2]; 2],
    now: Nanos,
    wake: [Option<Nanos>; 2],
}

impl Two {
    fn new(bomb: Option<&Bomb>, bomb_at: usize) -> Self {
        let usual = usual();
        let channels = usual.sim.channels;
        let (net, a, b) = SimNet::pair(usual.sim).unwrap();
        let open = |f| {
            Context::open(Box::new(f), Box::new(HostEngine::new(channels)), ContextConfig::default()).unwrap()
        };
        let contexts = [open(a), open(b)];
        let join = |bomb: Option<&Bomb>| {
            let qps = [0, 1].map(|end| contexts[end].create_qp(&QpConfig::default()).unwrap());
            let infos = [qps[1].info().clone(), qps[0].info().clone()];
            let mut n = 0;
            qps.map(|qp| {
                let mut config: ConnectionConfig = usual.connection.clone();
                if let Some(bomb) = bomb.filter(|_| n == bomb_at) {
                    config.scheme = Arc::new(bomb.clone());
                }
                let (s, r) = qp.connect(&infos[n]).unwrap();
                n += 1;
                Connection::new(s, r, config)
            })
        };
        let ([(c0, d0), (c1, d1)], [(c2, d2), (c3, d3)]) = (join(bomb), join(None));
        Self {
            net,
            contexts,
            connections: [[c0, c1], [c2, c3]],
            drivers: [[d0, d1], [d2, d3]],
            now: Nanos::ZERO,
            wake: [Some(Nanos::ZERO); 2],
        }
    }

    fn message(
        &self,
        connection: usize,
        from: usize,
        len: usize,
    ) -> (Transfer<SendResult>, Transfer<RecvResult>) {
        let mut src = self.contexts[from].register(len).unwrap();
        src.iter_mut().enumerate().for_each(|(i, b)| *b = sdr_tests::bed::byte(0, i));
        let dst = self.contexts[1 - from].register(len).unwrap();
        let r = self.connections[connection][1 - from].recv(dst);
        (self.connections[connection][from].send(src.freeze(), None), r)
    }

    fn run(&mut self, limit: Nanos, mut done: impl FnMut() -> bool) -> bool {
        self.wake = [Some(self.now); 2];
        while !done() {
            let due =
                |end: usize| [self.wake[end], self.net.nic_wake_at(end as u16)].into_iter().flatten().min();
            let due = [due(0), due(1)];
            let Some(next) = due.into_iter().flatten().min().filter(|t| *t <= limit) else { return false };
            self.now = self.now.max(next);
            for end in [0, 1] {
                if due[end].is_some_and(|t| t <= self.now) {
                    let mut wake = vec![self.contexts[end].poll(self.now)];
                    wake.extend(self.drivers.iter_mut().map(|pair| pair[end].poll(self.now)));
                    self.wake[end] = wake.into_iter().flatten().min();
                }
            }
        }
        true
    }
}

/// Takes both results as they come.
fn both<A, B>(t: &mut (Transfer<A>, Transfer<B>), out: &mut (Option<A>, Option<B>)) -> bool {
    if out.0.is_none() {
        out.0 = t.0.try_take();
    }
    if out.1.is_none() {
        out.1 = t.1.try_take();
    }
    out.0.is_some() && out.1.is_some()
}

#[test]
fn schemes_that_panic_end_their_connection_and_no_other() {
    for call in CALLS {
        for n in [1, 2, 3] {
            for end in [0, 1] {
                let bomb = Bomb { call, left: Arc::new(AtomicU32::new(n)) };
                let mut two = Two::new(Some(&bomb), end);
                let len = 300 * PACKET;
                // Both directions of the first connection, so that the bomb goes off whichever half it is in.
                let mut mine: Vec<_> =
                    (0..3).flat_map(|_| [two.message(0, 0, len), two.message(0, 1, len)]).collect();
                let mut other: Vec<_> =
                    (0..3).flat_map(|_| [two.message(1, 0, len), two.message(1, 1, len)]).collect();
                let nothing = || (0..6).map(|_| (None, None)).collect::<Vec<_>>();
                let (mut a, mut b) = (nothing(), nothing());
                let ended = two.run(Nanos::from_secs(10), || {
                    let pairs = mine.iter_mut().zip(&mut a).chain(other.iter_mut().zip(&mut b));
                    pairs.map(|(t, out)| both(t, out)).fold(true, |all, one| all & one)
                });
                let went_off =
                    bomb.left.load(Ordering::Relaxed) == 0 || bomb.left.load(Ordering::Relaxed) > n;
                let case = format!("{call:?} {n} at end {end}");
                assert!(ended, "{case}: transfers hang: {a:?}");
                assert!(went_off, "{case} was never called");
                let panicked = format!("bomb in {call:?}");
                let own = a.iter().enumerate().map(|(i, (s, r))| {
                    let send = s.as_ref().unwrap().as_ref().err().cloned();
                    let recv = r.as_ref().unwrap().as_ref().err().map(|e| e.why.clone());
                    if i % 2 == end { [send, recv] } else { [recv, send] }
                });
                let mut blown = 0;
                for [here, peer] in own {
                    if let Some(e) = here {
                        assert_eq!(e, TransferError::Panicked(panicked.clone()), "{case}");
                        blown += 1;
                    }
                    if let Some(e) = peer {
                        assert!(matches!(e, TransferError::Lost { .. }), "{case}: {e:?}");
                    }
                }
                assert!(blown > 0, "{case}");
                for (s, r) in b {
                    assert!(s.unwrap().is_ok(), "{case}");
                    assert!(Bed::holds(0, 0, &r.unwrap().unwrap().buf), "{case}");
                }
            }
        }
    }
}

struct Bell {
    rung: AtomicU32,
    panics: bool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            panic!("waker");
        }
    }
}

fn bell(panics: bool) -> Arc<Bell> {
    Arc::new(Bell { rung: AtomicU32::new(0), panics })
}

fn listen<T>(t: &mut Transfer<T>, bell: &Arc<Bell>) -> bool
where
    Transfer<T>: Future,
{
    let waker = Waker::from(bell.clone());
    Pin::new(t).poll(&mut std::task::Context::from_waker(&waker)).is_pending()
}

fn wire(pair: &Pair, end: usize, len: usize) -> sdr_sdk::memory::RecvBuf {
    pair.qps.contexts[end].register(len).unwrap()
}

/// Runs, and catches what wakers throw; returns how often they did.
fn run_through(pair: &mut Pair, until: Nanos) -> u32 {
    for panics in 0..100 {
        if catch_unwind(AssertUnwindSafe(|| pair.run_until(until))).is_ok() {
            return panics;
        }
    }
    panic!("wakers panic without end");
}

#[test]
fn a_waker_that_panics_reaches_the_caller_once_and_stops_nobody() {
    let mut pair = Pair::new(usual()).unwrap();
    let (bad, good) = (bell(true), bell(false));
    let mut sends = Vec::new();
    let mut recvs = Vec::new();
    for i in 0..6 {
        recvs.push(pair.connections[1].recv(wire(&pair, 1, PACKET)));
        sends.push(pair.connections[0].send(wire(&pair, 0, PACKET).freeze(), None));
        // The bad ones come first of those that are woken together.
        let bell = if i < 2 { &bad } else { &good };
        assert!(listen(&mut sends[i], bell) && listen(&mut recvs[i], bell));
    }
    pair.touch();
    let panics = run_through(&mut pair, RTT.mul_div(20, 1));
    assert!((1..=4).contains(&panics), "{panics}");
    assert_eq!(bad.rung.load(Ordering::Relaxed), 4);
    assert_eq!(good.rung.load(Ordering::Relaxed), 8, "everyone is woken");
    assert!(sends.iter_mut().all(|t| t.try_take().is_some_and(|r| r.is_ok())));
    assert!(recvs.iter_mut().all(|t| t.try_take().is_some_and(|r| r.is_ok())));
    assert!(!pair.connections[0].ended());
}

/// The wakers of receives that a close cancels are foreign code as well.
#[test]
fn a_waker_that_panics_at_close_is_no_panic_of_the_driver() {
    let mut pair = Pair::new({
        let mut c = usual();
        c.qp.slots = 2;
        c
    })
    .unwrap();
    let (bad, good) = (bell(true), bell(false));
    let mut waiting: Vec<_> = (0..5).map(|_| pair.connections[1].recv(wire(&pair, 1, PACKET))).collect();
    let mut send = pair.connections[1].send(wire(&pair, 1, PACKET).freeze(), None);
    pair.touch();
    pair.run_until(RTT.mul_div(4, 1));
    for (i, t) in waiting.iter_mut().enumerate() {
        assert!(listen(t, if i == 2 { &bad } else { &good }));
    }
    pair.connections[1].close();
    let _receive = pair.connections[0].recv(wire(&pair, 0, PACKET));
    pair.touch();
    assert_eq!(run_through(&mut pair, RTT.mul_div(20, 1)), 1);
    assert_eq!(good.rung.load(Ordering::Relaxed), 4, "everyone is woken");
    for t in &mut waiting {
        let e = t.try_take().unwrap().unwrap_err();
        assert_eq!(e.why, TransferError::Closed);
        assert!(e.buf.is_some());
    }
    assert!(matches!(send.try_take(), Some(Ok(_))), "accepted work goes on");
}

/// A panicking waker in the drop of a driver does not abort, and everyone is woken.
#[test]
fn a_waker_that_panics_when_the_driver_is_dropped() {
    let mut pair = Pair::new(usual()).unwrap();
    let (bad, good) = (bell(true), bell(false));
    let mut waiting: Vec<_> = (0..4).map(|_| pair.connections[0].recv(wire(&pair, 0, PACKET))).collect();
    for (i, t) in waiting.iter_mut().enumerate() {
        assert!(listen(t, if i == 0 { &bad } else { &good }));
    }
    pair.touch();
    pair.run_until(RTT);
    assert!(catch_unwind(AssertUnwindSafe(|| pair.drop_driver(0))).is_err());
    assert_eq!(good.rung.load(Ordering::Relaxed), 3, "everyone is woken");
    assert!(waiting.iter_mut().all(|t| t.try_take().is_some_and(|r| r.is_err())));
}
