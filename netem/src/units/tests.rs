use proptest::prelude::*;

use super::*;

fn size(text: &str) -> Result<u64, UnitError> {
    text.parse::<ByteSize>().map(|s| s.0)
}

fn rate(text: &str) -> Result<u64, UnitError> {
    text.parse::<BitRate>().map(BitRate::bits_per_second)
}

fn time(text: &str) -> Result<u64, UnitError> {
    text.parse::<Duration>().map(|t| t.0.0)
}

fn probability(text: &str) -> Result<f64, UnitError> {
    text.parse::<Probability>().map(Probability::get)
}

#[test]
fn sizes() {
    assert_eq!(size("100001B"), Ok(100_001));
    assert_eq!(size("4KiB"), Ok(4096));
    assert_eq!(size("8MiB"), Ok(8 << 20));
    assert_eq!(size("1GiB"), Ok(1 << 30));
    assert_eq!(size("1.5kB"), Ok(1500));
    assert_eq!(size("3MB"), Ok(3_000_000));
    assert_eq!(size("2GB"), Ok(2_000_000_000));
    assert_eq!(size("4096"), Ok(4096));
    assert_eq!(size("0.50KiB"), Ok(512));
    assert!(matches!(size("0.1KiB"), Err(UnitError::TooFine { .. })));
    assert!(matches!(size("17179869184GiB"), Err(UnitError::OutOfRange { .. })));
    for bad in ["", "B", "-1B", "4kib", "4 KiB", "1..5kB", "1.kB", ".5kB", "1.2.3kB", "1e3B", "٣B"] {
        assert!(matches!(size(bad), Err(UnitError::Malformed { .. })), "{bad:?} gave {:?}", size(bad));
    }
}

#[test]
fn rates() {
    assert_eq!(rate("1Gbit"), Ok(1_000_000_000));
    assert_eq!(rate("400Gbit"), Ok(400_000_000_000));
    assert_eq!(rate("3.2Tbit"), Ok(3_200_000_000_000));
    assert_eq!(rate("10Mbit"), Ok(10_000_000));
    assert_eq!(rate("500kbit"), Ok(500_000));
    assert!(matches!(rate("0Gbit"), Err(UnitError::OutOfRange { .. })));
    assert!(matches!(rate("100"), Err(UnitError::Malformed { .. })));
    assert!(BitRate::new(0).is_err());
}

#[test]
fn times() {
    assert_eq!(time("25ms"), Ok(25_000_000));
    assert_eq!(time("20us"), Ok(20_000));
    assert_eq!(time("1s"), Ok(1_000_000_000));
    assert_eq!(time("1.5ms"), Ok(1_500_000));
    assert_eq!(time("300ns"), Ok(300));
    assert_eq!(time("0.000000001s"), Ok(1));
    assert!(matches!(time("0.3ns"), Err(UnitError::TooFine { unit: "ns", .. })));
    assert!(matches!(time("0.0000000000000000000001s"), Err(UnitError::TooFine { .. })));
}

#[test]
fn probabilities() {
    assert_eq!(probability("1e-5"), Ok(1e-5));
    assert_eq!(probability("0.01"), Ok(0.01));
    assert_eq!(probability("1%"), Ok(0.01));
    assert_eq!(probability("0"), Ok(0.0));
    for bad in ["1", "100%", "-0.1", "nan", "inf"] {
        assert!(matches!(probability(bad), Err(UnitError::OutOfRange { .. })), "{bad}");
    }
    assert!(matches!(probability("%"), Err(UnitError::Malformed { .. })));
    assert!(probability("-0").is_ok_and(f64::is_sign_positive));
}

#[test]
fn distances_give_the_rtt_of_light() {
    let parse = |text: &str| text.parse::<Distance>();
    let d = parse("3750km").unwrap();
    // 2 * 3750 / 299792.458 s, and 1.468 times as much.
    assert_eq!(d.rtt(Medium::Vacuum), Nanos(25_017_307));
    assert_eq!(d.rtt(Medium::Fibre), Nanos(36_725_407));
    assert_eq!(Medium::default(), Medium::Vacuum);
    assert!(matches!(parse("3750"), Err(UnitError::Malformed { .. })));
    assert!(matches!(parse("-1km"), Err(UnitError::OutOfRange { .. })));
    assert!(matches!(parse("nankm"), Err(UnitError::OutOfRange { .. })));
}

#[test]
fn errors_name_the_value_and_the_form_in_one_line() {
    let message = size("4 KiB\n").unwrap_err().to_string();
    assert!(message.contains(r#"size "4 KiB\n""#) && message.contains("such as 100001B"), "{message}");
    assert!(!message.contains('\n'));
    let message = probability("1.5").unwrap_err().to_string();
    assert!(message.contains(r#"probability "1.5" is out of range"#) && message.contains("1%"), "{message}");
}

#[test]
fn canonical_forms() {
    assert_eq!(ByteSize(0).to_string(), "0B");
    assert_eq!(ByteSize(16 << 20).to_string(), "16MiB");
    assert_eq!(ByteSize(1_000_000).to_string(), "1MB");
    assert_eq!(ByteSize(100_001).to_string(), "100001B");
    assert_eq!(BitRate(3_200_000_000_000).to_string(), "3200Gbit");
    assert_eq!(Duration(Nanos(1_500_000)).to_string(), "1500us");
    assert_eq!(Probability(1e-5).to_string(), "1e-5");
    assert_eq!(Probability(0.01).to_string(), "0.01");
}

proptest! {
    #[test]
    fn no_text_panics(text in ".*", near in r"[+-]?[0-9]{0,22}\.?[0-9]{0,22}(e[0-9]+)?(|B|GiB|Tbit|s|ns|%|km)") {
        for text in [text, near] {
            let _ = (size(&text), rate(&text), time(&text), probability(&text));
            let _ = (text.parse::<Distance>(), text.parse::<Medium>());
        }
    }

    #[test]
    fn integers_round_trip(value: u64, digits in 0u32..18) {
        let value = (value >> (value % 64)).saturating_mul(10u64.pow(digits));
        prop_assert_eq!(size(&ByteSize(value).to_string()), Ok(value));
        prop_assert_eq!(time(&Duration(Nanos(value)).to_string()), Ok(value));
        if value > 0 {
            prop_assert_eq!(rate(&BitRate(value).to_string()), Ok(value));
        }
    }

    #[test]
    fn floats_round_trip(p in 0.0..1.0f64, exponent in 0i32..300, km in 0.0..1e9f64) {
        let p = Probability(p * 10f64.powi(-exponent));
        prop_assert_eq!(p.to_string().parse(), Ok(p));
        let distance = Distance(km);
        prop_assert_eq!(distance.to_string().parse(), Ok(distance));
    }
}
