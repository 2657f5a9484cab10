use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<PathSpec, SpecError> {
    text.parse()
}

fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    let text = "rtt=25ms,rate=2Gbit,loss=1e-3,burst=4,jitter=1ms,reorder=0.01,dup=1e-4,corrupt=1e-4,queue=16MiB,seed=7";
    let p = |value| Probability::new(value).unwrap();
    let path = parse(text).unwrap();
    let expected = PathSpec {
        length: PathLength::Rtt(Nanos::from_millis(25)),
        rate: Some(BitRate::new(2_000_000_000).unwrap()),
        loss: p(1e-3),
        burst: 4.0,
        jitter: Nanos::from_millis(1),
        reorder: p(0.01),
        duplicate: p(1e-4),
        corrupt: p(1e-4),
        queue: Some(ByteSize(16 << 20)),
        seed: 7,
    };
    assert_eq!(path, expected);
    assert_eq!(path.to_string(), text);
    let (forward, reverse) = (path.forward().unwrap(), path.reverse().unwrap());
    assert_eq!(forward.delay, Nanos(12_500_000));
    assert_eq!(forward.loss, LossSpec::GilbertElliott { p: p(1e-3), burst: 4.0 });
    assert_eq!(forward.queue, expected.queue);
    assert_ne!(forward.seed, reverse.seed);
    assert_eq!(LinkSpec { seed: 0, ..forward }, LinkSpec { seed: 0, ..reverse });
}

#[test]
fn any_subset_and_order() {
    assert_eq!(parse(""), Ok(PathSpec::default()));
    assert_eq!(PathSpec::default().to_string(), "");
    assert_eq!(PathSpec::default().forward().unwrap().loss, LossSpec::None);
    assert_eq!(parse(" seed=7 , rtt = 1500us").unwrap().to_string(), "rtt=1500us,seed=7");
    assert_eq!(parse("loss=0,burst=4").unwrap().to_string(), "");
    assert_eq!(parse("loss=1%,burst=0.5").unwrap().to_string(), "loss=0.01");
}

#[test]
fn the_halves_of_an_odd_rtt_add_up() {
    let path = parse("rtt=7ns").unwrap();
    assert_eq!((path.forward().unwrap().delay, path.reverse().unwrap().delay), (Nanos(4), Nanos(3)));
}

#[test]
fn a_distance_stands_for_the_rtt() {
    assert_eq!(parse("distance=3750km").unwrap().rtt(), Nanos(25_017_307));
    let path = parse("medium=fibre,distance=3750km").unwrap();
    assert_eq!(path.rtt(), Nanos(36_725_407));
    assert_eq!(path.to_string(), "distance=3750km,medium=fibre");
}

#[test]
fn mistakes_name_the_key_and_what_is_allowed() {
    for (text, expected) in [
        ("rtt=25ms,distance=1km", "rtt=25ms and distance=1km are both given; give one of them"),
        ("medium=fibre", "medium=fibre needs distance; add distance= or leave medium out"),
        ("burst=4", "burst=4 needs loss; add loss= or leave burst out"),
        ("rtt=1ms,rtt=2ms", "key rtt is given twice; give it once"),
        (
            "loss=0.9,burst=4",
            "loss, burst: loss 0.9 is too high for bursts of 4 packets; at most burst / (burst + 1)",
        ),
        ("seed=-1", "seed: \"-1\" is not understood; write an integer from 0"),
        ("loss=1e-3,burst=0", "burst: \"0\" is not understood; write a number of packets above 0"),
        ("rate=fast", "rate: rate \"fast\" is not understood; write a number above 0 with bit, kbit"),
        ("medium=glass,distance=1km", "medium: medium \"glass\" is not understood; write vacuum or fibre"),
    ] {
        let message = message(text);
        assert!(message.starts_with(expected), "{text}: {message}");
        assert!(!message.contains('\n'));
    }
    for text in ["delay=1ms", "RTT=1ms", "=1ms"] {
        assert!(matches!(parse(text), Err(SpecError::UnknownKey { .. })), "{text}");
        assert!(message(text).ends_with(&format!("is unknown; keys are {KEYS}")), "{text}");
    }
    for text in ["rtt", "rtt=1ms,", ",", "rtt=1ms,,seed=1"] {
        assert!(matches!(parse(text), Err(SpecError::NotKeyValue { .. })), "{text}");
    }
}

fn probability() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), 0.0..0.4f64, 0.0..1e-4f64].prop_map(|p| Probability::new(p).unwrap())
}

prop_compose! {
    fn any_path()(
        length in prop_oneof![
            any::<u64>().prop_map(|ns| PathLength::Rtt(Nanos(ns))),
            (0.0..1e9f64, any::<bool>()).prop_map(|(km, fibre)| {
                let medium = if fibre { Medium::Fibre } else { Medium::Vacuum };
                PathLength::Distance(format!("{km}km").parse().unwrap(), medium)
            }),
        ],
        rate in prop::option::of((1u64..).prop_map(|bits| BitRate::new(bits).unwrap())),
        loss in probability(),
        burst in prop_oneof![Just(1.0), 1.0..1e6f64],
        jitter: u64,
        (reorder, duplicate, corrupt) in (probability(), probability(), probability()),
        queue in prop::option::of(any::<u64>().prop_map(ByteSize)),
        seed: u64,
    ) -> PathSpec {
        let burst = if loss == Probability::ZERO { 1.0 } else { burst };
        PathSpec { length, rate, loss, burst, jitter: Nanos(jitter), reorder, duplicate, corrupt, queue, seed }
    }
}

proptest! {
    #[test]
    fn display_round_trips(path in any_path()) {
        prop_assert_eq!(parse(&path.to_string()), Ok(path.clone()));
        prop_assert!(path.forward().is_ok() && path.reverse().is_ok());
        let halves = path.forward().unwrap().delay + path.reverse().unwrap().delay;
        prop_assert_eq!(halves, path.rtt());
    }

    #[test]
    fn no_text_panics(text in ".*", near in "((rtt|loss|burst|seed|rate|x)=?[0-9.e-]{0,6}(ms|Gbit|%)?,?){0,6}") {
        let _ = (parse(&text), parse(&near));
    }
}
