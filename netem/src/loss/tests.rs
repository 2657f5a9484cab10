use proptest::prelude::*;

use super::*;

/// 4096 B at 400 Gbit/s.
const SLOT: Picos = Picos(81_920);

fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn model(spec: &LossSpec, seed: u64) -> LossModel {
    LossModel::new(spec, SLOT, seed).unwrap()
}

fn gilbert(loss: f64, burst: f64) -> LossSpec {
    LossSpec::GilbertElliott { p: p(loss), burst }
}

/// Lost stretches of a dense stream from time 0, with runs of `run` packets; adjacent stretches are joined.
fn dense_losses(model: &mut LossModel, packets: u64, run: u32) -> Vec<Range<u64>> {
    let mut losses: Vec<Range<u64>> = Vec::new();
    let mut survivors = Vec::new();
    let mut base = 0;
    while base < packets {
        let cadence = Cadence::every(Picos(u128::from(base) * SLOT.0), SLOT);
        model.survivors(&cadence, run, &mut survivors);
        let mut from = 0;
        for good in survivors.iter().cloned().chain(std::iter::once(run..run)) {
            if good.start > from {
                let lost = base + u64::from(from)..base + u64::from(good.start);
                match losses.last_mut() {
                    Some(last) if last.end == lost.start => last.end = lost.end,
                    _ => losses.push(lost),
                }
            }
            from = good.end;
        }
        base += u64::from(run);
    }
    losses
}

fn total(losses: &[Range<u64>]) -> u64 {
    losses.iter().map(|r| r.end - r.start).sum()
}

#[test]
fn iid_average() {
    let packets = 10_000_000u64;
    for (seed, loss) in [(1, 1e-4), (2, 1e-3), (3, 1e-1)] {
        let lost = total(&dense_losses(&mut model(&LossSpec::Iid { p: p(loss) }, seed), packets, 64));
        let expected = packets as f64 * loss;
        let tolerance = 4.0 * (expected * (1.0 - loss)).sqrt();
        assert!((lost as f64 - expected).abs() < tolerance, "seed {seed} p {loss}: {lost} lost");
    }
}

#[test]
fn bursts_have_the_average_and_the_mean_length() {
    let packets = 100_000_000u64;
    for (seed, loss, burst) in
        [(1, 1e-3, 4.0), (2, 1e-3, 16.0), (3, 1e-2, 4.0), (4, 1e-2, 16.0), (5, 0.5, 4.0)]
    {
        let losses = dense_losses(&mut model(&gilbert(loss, burst), seed), packets, 1 << 20);
        let packets = packets.next_multiple_of(1 << 20) as f64;
        let average = total(&losses) as f64 / packets;
        let bursts = losses.len() as f64;
        // The losses of a burst are one geometric draw of mean B and deviation below B: 4 sigma of the sum.
        let tolerance = 4.0 * (2.0 / bursts).sqrt();
        assert!(
            (average / loss - 1.0).abs() < tolerance,
            "seed {seed} p {loss} B {burst}: average {average}"
        );
        let mean = total(&losses) as f64 / bursts;
        let tolerance = 4.0 / bursts.sqrt() + 0.01;
        assert!((mean / burst - 1.0).abs() < tolerance, "seed {seed} p {loss} B {burst}: mean burst {mean}");
    }
}

#[test]
fn a_sparse_stream_meets_the_bad_periods_of_a_dense_one() {
    let (spec, seed) = (gilbert(1e-2, 16.0), 11);
    let losses = dense_losses(&mut model(&spec, seed), 50_000_000, 64);
    let mut sparse = model(&spec, seed);
    let mut survivors = Vec::new();
    let (mut lost, mut at) = (0, 0);
    for n in 0..500_000u64 {
        let slot = n * 100;
        sparse.survivors(&Cadence::every(Picos(u128::from(slot) * SLOT.0), SLOT), 1, &mut survivors);
        while at < losses.len() && losses[at].end <= slot {
            at += 1;
        }
        let dense_lost = losses.get(at).is_some_and(|r| r.contains(&slot));
        assert_eq!(survivors.is_empty(), dense_lost, "seed {seed} slot {slot}");
        lost += u64::from(dense_lost);
    }
    // 5000 expected, nearly independent: sigma is 1.4 percent.
    let average = lost as f64 / 500_000.0;
    assert!((average / 1e-2 - 1.0).abs() < 0.06, "seed {seed}: average {average}");
}

#[test]
fn bursts_last_through_packets_of_another_size() {
    // Packets of a quarter slot see bad periods four times as many packets long.
    let seed = 5;
    let mut fine = model(&gilbert(1e-2, 4.0), seed);
    let mut survivors = Vec::new();
    fine.survivors(&Cadence::every(Picos(0), Picos(SLOT.0 / 4)), 40_000_000, &mut survivors);
    let gaps = survivors.len() as f64;
    let lost = 40_000_000 - survivors.iter().map(|r| r.end - r.start).sum::<u32>();
    let mean = f64::from(lost) / gaps;
    assert!((mean / 16.0 - 1.0).abs() < 0.04, "seed {seed}: mean burst {mean}");
}

#[test]
fn long_gaps_are_free_and_land_in_the_stationary_law() {
    // 1e5 hours of 3.2 Tbit/s slots hold 3.5e16 of them: walking them would not end.
    let slot = Picos(10_240);
    let seed = 3;
    let mut model = LossModel::new(&gilbert(0.1, 16.0), slot, seed).unwrap();
    let mut survivors = Vec::new();
    let mut lost = 0;
    for hour in 0..100_000u128 {
        model.survivors(&Cadence::every(Picos(hour * 3_600_000_000_000_000), slot), 1, &mut survivors);
        lost += u32::from(survivors.is_empty());
    }
    // Sigma is 95.
    assert!((9_600..10_400).contains(&lost), "seed {seed}: {lost} of 100000");
}

#[test]
fn a_changed_slot_changes_the_length_in_time() {
    let seed = 9;
    let mut model = model(&gilbert(1e-2, 4.0), seed);
    model.set_slot(Picos(SLOT.0 * 4));
    let mean = |losses: &[Range<u64>]| total(losses) as f64 / losses.len() as f64;
    let losses = dense_losses(&mut model, 50_000_000, 1 << 20);
    assert!((mean(&losses) / 16.0 - 1.0).abs() < 0.05, "seed {seed}: mean burst {}", mean(&losses));
}

#[test]
fn a_burst_of_one_is_independent_loss() {
    let iid = dense_losses(&mut model(&LossSpec::Iid { p: p(0.01) }, 4), 1_000_000, 64);
    assert_eq!(dense_losses(&mut model(&gilbert(0.01, 1.0), 4), 1_000_000, 64), iid);
    assert_eq!(LossSpec::bursty(p(0.01), 1.0), Ok(LossSpec::Iid { p: p(0.01) }));
    assert_eq!(LossSpec::bursty(Probability::ZERO, 4.0), Ok(LossSpec::None));
}

#[test]
fn impossible_parameters_are_refused() {
    let error = LossSpec::bursty(p(0.9), 4.0).unwrap_err();
    assert_eq!(error, LossError::AboveBurstLimit { p: p(0.9), burst: 4.0, limit: 0.8 });
    assert!(error.to_string().contains("at most burst / (burst + 1) = 0.800000"), "{error}");
    assert!(LossSpec::bursty(p(0.8), 4.0).is_ok());
    for burst in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
        assert!(matches!(LossSpec::bursty(p(0.1), burst), Err(LossError::BadBurst { .. })), "{burst}");
    }
    for (every, offset) in [(0, 0), (3, 3)] {
        let refused = LossModel::new(&LossSpec::Periodic { every, offset }, SLOT, 0);
        assert!(matches!(refused, Err(LossError::BadPeriod { .. })));
    }
    assert_eq!(LossSpec::trace_from_text(" # nothing\n"), Err(LossError::EmptyTrace));
    let bad = LossSpec::trace_from_text("01\n0x1\n");
    assert_eq!(bad, Err(LossError::BadTrace { line: 2, found: 'x' }));
}

#[test]
fn a_trace_is_read_and_repeats() {
    let spec = LossSpec::trace_from_text("0 1 1 0 # measured\n\n1\n").unwrap();
    assert_eq!(spec, LossSpec::Trace([false, true, true, false, true].into()));
    assert_eq!(dense_losses(&mut model(&spec, 0), 12, 3), [1..3, 4..5, 6..8, 9..10, 11..12]);
    let clean = LossSpec::Trace([false; 7].into());
    assert!(dense_losses(&mut model(&clean, 0), 100, 10).is_empty());
}

fn any_spec() -> impl Strategy<Value = LossSpec> {
    prop_oneof![
        Just(LossSpec::None),
        (0.0..0.99f64).prop_map(|loss| LossSpec::Iid { p: p(loss) }),
        (0.0..0.5f64, 1.0..20.0f64).prop_map(|(loss, burst)| gilbert(loss, burst)),
        (1..20u64, 0..20u64).prop_map(|(every, o)| LossSpec::Periodic { every, offset: o % every }),
        prop::collection::vec(any::<bool>(), 1..40).prop_map(|t| LossSpec::Trace(t.into())),
    ]
}

proptest! {
    #[test]
    fn cutting_a_stream_into_runs_changes_nothing(spec in any_spec(), seed: u64, run in 1u32..300) {
        let packets = u64::from(run) * 20;
        let whole = dense_losses(&mut model(&spec, seed), packets, run * 20);
        prop_assert_eq!(&dense_losses(&mut model(&spec, seed), packets, run), &whole);
        prop_assert_eq!(&dense_losses(&mut model(&spec, seed), packets, 1), &whole);
    }

    #[test]
    fn counted_models_match_their_definition(every in 1u64..20, offset in 0u64..20, trace in prop::collection::vec(any::<bool>(), 1..40)) {
        let offset = offset % every;
        let lost = |losses: &[Range<u64>], n: u64| losses.iter().any(|r| r.contains(&n));
        let periodic = dense_losses(&mut model(&LossSpec::Periodic { every, offset }, 0), 100, 7);
        let traced = dense_losses(&mut model(&LossSpec::Trace(trace.clone().into()), 0), 100, 7);
        for n in 0..100 {
            prop_assert_eq!(lost(&periodic, n), n % every == offset);
            prop_assert_eq!(lost(&traced, n), trace[n as usize % trace.len()]);
        }
    }

    #[test]
    fn no_trace_text_panics(text in ".*", near in "[01 #\n]*") {
        let _ = (LossSpec::trace_from_text(&text), LossSpec::trace_from_text(&near));
    }
}
