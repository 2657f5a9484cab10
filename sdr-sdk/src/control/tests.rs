use super::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

const KEYLESS: CtsEntry =
    CtsEntry { bytes: 7, per_chunk: 64, payload: 0x1000, extra: 3, grant: Grant { key: 0, address: 0 } };
const KEYED_ONE: CtsEntry = CtsEntry {
    bytes: 1 << 40,
    per_chunk: 1,
    payload: 0x0102_0304,
    extra: 0,
    grant: Grant { key: 0xdead_beef, address: 1 },
};

fn header() -> impl Strategy<Value = Header> {
    let flags = (any::<bool>(), any::<bool>(), of(any::<u8>().prop_map(CloseReason::from_code)));
    let seqs = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let rest = (of((any::<u64>(), any::<u64>())), of((any::<u64>(), any::<u64>())), of(any::<u32>()));
    (flags, seqs, rest).prop_map(
        |((to_receiver, reply_wanted, close), (a, b, c, d, r), (drain, echo, path))| Header {
            to_receiver,
            reply_wanted,
            close,
            granted: Seq(a),
            grants_seen: Seq(b),
            closed: Seq(c),
            retired: Seq(r),
            drain: drain.map(|(g, n)| (Seq(g), n)),
            sent_at: Nanos(d),
            echo: echo.map(|(t, h)| (Nanos(t), Nanos(h))),
            path,
        },
    )
}

fn entry() -> impl Strategy<Value = CtsEntry> {
    let grant = prop_oneof![
        Just(Grant::default()),
        (any::<u32>(), any::<u64>()).prop_map(|(key, address)| Grant { key, address }),
    ];
    (any::<u64>(), 0..=64u8, any::<u32>(), any::<u32>(), grant).prop_map(
        |(bytes, per_chunk, payload, extra, grant)| CtsEntry { bytes, per_chunk, payload, extra, grant },
    )
}

/// What holds for every datagram that is accepted, whatever its bytes.
fn check_accepted(bytes: &[u8], d: &Datagram<'_>) {
    assert!(bytes.len() <= MAX_CONTROL);
    assert!(bytes.ends_with(d.upper));
    let entries: Vec<_> = d.entries().collect();
    assert_eq!(entries.len(), d.entries().len());
    for (i, (seq, e)) in entries.iter().enumerate() {
        assert_eq!(*seq, d.first().plus(i as u64));
        assert!(e.per_chunk <= 64);
    }
    let mut again = Vec::new();
    let n = encode(&d.header, d.first(), entries.iter().map(|e| e.1), d.upper, &mut again).unwrap();
    assert_eq!(n, entries.len());
    let back = Datagram::decode(&again).unwrap();
    assert_eq!((back.header, back.upper, back.first()), (d.header, d.upper, d.first()));
    assert!(back.entries().eq(d.entries()));
}

#[test]
fn bytes_stand_where_the_table_says() {
    let h = Header {
        to_receiver: true,
        reply_wanted: false,
        close: Some(CloseReason::PeerSilent),
        granted: Seq(0x0102),
        grants_seen: Seq(u64::MAX),
        closed: Seq(3),
        retired: Seq(2),
        drain: Some((Seq(0x1122), 5)),
        sent_at: Nanos(6),
        echo: Some((Nanos(8), Nanos(9))),
        path: Some(0x0480),
    };
    let mut out = vec![0xaa; 3];
    assert_eq!(encode(&h, Seq(7), [KEYLESS, KEYED_ONE], b"up", &mut out), Ok(2));
    let mut want = vec![3, 0b11_1101];
    for n in [0x0102, u64::MAX, 3, 2, 6, 7] {
        want.extend(n.to_be_bytes());
    }
    want.extend([2, 3]);
    for n in [0x1122u64, 5, 8, 9] {
        want.extend(n.to_be_bytes());
    }
    want.extend([0, 0, 4, 0x80]);
    want.extend([64, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x10, 0, 0, 0, 0, 3]);
    want.extend([0x81, 0, 0, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
    want.extend([0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0, 0, 0, 1]);
    want.extend(b"up");
    assert_eq!(out, want);
    assert_eq!(h.encoded_len(), 88);
}

#[test]
fn size_limits_are_exact() {
    let h = Header::default();
    assert_eq!((h.encoded_len(), h.upper_room()), (51, 1_113));
    let mut out = Vec::new();
    // (1,164 - 51) / 17 and / 29, and the rest stays unused.
    assert_eq!(encode(&h, Seq(0), std::iter::repeat(KEYLESS), &[], &mut out), Ok(65));
    assert_eq!(out.len(), 51 + 65 * 17);
    assert_eq!(encode(&h, Seq(0), std::iter::repeat(KEYED_ONE), &[], &mut out), Ok(38));
    assert_eq!(out.len(), 51 + 38 * 29);
    // The upper payload goes first.
    let upper = [9; 1_113];
    assert_eq!(encode(&h, Seq(0), std::iter::repeat(KEYLESS), &upper, &mut out), Ok(0));
    assert_eq!(out.len(), MAX_CONTROL);
    assert_eq!(Datagram::decode(&out).unwrap().upper, upper);
    assert_eq!(encode(&h, Seq(0), [KEYLESS; 2], &upper[..1_096], &mut out), Ok(1));
    assert_eq!(out.len(), MAX_CONTROL);
    assert_eq!(encode(&h, Seq(0), [KEYLESS; 2], &upper[..1_097], &mut out), Ok(0));
    assert_eq!(encode(&h, Seq(0), [KEYED_ONE], &upper[..1_085], &mut out), Ok(0));
    assert_eq!(encode(&h, Seq(0), [KEYED_ONE], &upper[..1_084], &mut out), Ok(1));
    let too_long = Err(EncodeError::UpperTooLong { len: 1_114, room: 1_113 });
    assert_eq!(encode(&h, Seq(0), [], &[0; 1_114], &mut out), too_long);
    assert!(out.is_empty());
}

#[test]
fn a_grant_fits_a_queue_pair_or_it_does_not() {
    let spec = QueueSpec {
        layout: crate::ImmLayout::L10_18_4,
        channels: 1,
        slots: 1,
        generations: 1,
        payload: 1000,
        user_immediate: false,
    };
    let most = 1 << 18;
    let of = |bytes, per_chunk, payload, extra| {
        CtsEntry { bytes, per_chunk, payload, extra, grant: Grant::default() }.fits(&spec)
    };
    assert!(CtsEntry::WITHDRAWN.fits(&spec));
    assert!(of(0, 1, 1, 0) && of(most * 1000, 64, 1000, 0) && of(most * 10, 64, 10, 0));
    assert!(
        !of(7, 0, 1000, 0) && !of(7, 1, 0, 0) && !of(7, 1, 1001, 0),
        "no chunk, no packet, too long a packet"
    );
    assert!(!of(most * 1000 + 1, 64, 1000, 0) && !of(u64::MAX, 64, 1, 1));
    // 65 packets fill two chunks of 64.
    assert!(
        of(65, 64, 1, most as u32 - 128) && !of(65, 64, 1, most as u32 - 127) && !of(65, 64, 1, u32::MAX)
    );
    assert_eq!((first_extra(65, 64), first_extra(64, 64), first_extra(0, 64)), (128, 64, 0));
}

#[test]
fn wrong_bytes_have_their_own_errors() {
    let mut ok = Vec::new();
    encode(&Header::default(), Seq(0), [KEYED_ONE], &[], &mut ok).unwrap();
    let with = |at: usize, b: u8| {
        let mut v = ok.clone();
        v[at] = b;
        Datagram::decode(&v).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(0, 1), DecodeError::Version { got: 1 });
    assert_eq!(with(1, 0x40), DecodeError::Flags(0x40));
    assert_eq!(with(COUNT_AT, 2), DecodeError::Truncated);
    assert_eq!(with(FIXED, 0xff), DecodeError::PerChunk(0x7f));
    assert_eq!(with(FIXED, 65), DecodeError::PerChunk(65));
    for n in 0..ok.len() {
        assert_eq!(Datagram::decode(&ok[..n]).map(|_| ()).unwrap_err(), DecodeError::Truncated);
    }
    ok.resize(MAX_CONTROL + 1, 0);
    assert_eq!(Datagram::decode(&ok).map(|_| ()).unwrap_err(), DecodeError::TooLong(1_165));
    assert!(Datagram::decode(&ok[..MAX_CONTROL]).is_ok());
    // A stranger's version is reported as such, whatever follows.
    assert_eq!(Datagram::decode(&[7]).map(|_| ()).unwrap_err(), DecodeError::Version { got: 7 });

    for per_chunk in [65, 0x81] {
        let bad = CtsEntry { per_chunk, ..KEYLESS };
        let mut out = Vec::new();
        let e = encode(&Header::default(), Seq(0), [KEYLESS, bad], &[], &mut out);
        assert_eq!((e, out.len()), (Err(EncodeError::PerChunk(per_chunk)), 0));
    }
}

#[test]
fn close_codes_survive() {
    for code in 0..=u8::MAX {
        assert_eq!(CloseReason::from_code(code).code(), code);
    }
    assert_eq!(CloseReason::from_code(5), CloseReason::Unknown(5));
}

proptest! {
    #[test]
    fn round_trip(h in header(), first: u64, entries in vec(entry(), 0..150), upper in vec(any::<u8>(), 0..=MAX_UPPER)) {
        let mut out = Vec::new();
        let n = encode(&h, Seq(first), entries.iter().copied(), &upper, &mut out).unwrap();
        prop_assert!(out.len() <= MAX_CONTROL);
        // It stopped only because the next one did not fit.
        if let Some(next) = entries.get(n) {
            prop_assert!(out.len() + next.encoded_len() > MAX_CONTROL);
        }
        let d = Datagram::decode(&out).unwrap();
        prop_assert_eq!((d.header, d.first(), d.upper), (h, Seq(first), &upper[..]));
        let want = entries[..n].iter().enumerate().map(|(i, e)| (Seq(first).plus(i as u64), *e));
        prop_assert!(d.entries().eq(want));
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in vec(any::<u8>(), 0..1_300), plausible: bool) {
        if plausible && bytes.len() > COUNT_AT {
            bytes[0] = VERSION;
            bytes[1] &= ALL_FLAGS;
            bytes[COUNT_AT] %= 8;
        }
        if let Ok(d) = Datagram::decode(&bytes) {
            check_accepted(&bytes, &d);
        }
    }

    #[test]
    fn mutated_datagrams_are_survived(
        h in header(),
        entries in vec(entry(), 0..60),
        upper in vec(any::<u8>(), 0..200),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        keep in of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = Vec::new();
        encode(&h, Seq(u64::MAX - 1), entries, &upper, &mut bytes).unwrap();
        for (at, b) in hits {
            let at = at.index(bytes.len());
            bytes[at] = b;
        }
        if let Some(keep) = keep {
            bytes.truncate(keep.index(bytes.len()));
        }
        if let Ok(d) = Datagram::decode(&bytes) {
            check_accepted(&bytes, &d);
        }
    }
}
