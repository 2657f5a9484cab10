use super::*;
use proptest::prelude::*;

fn header() -> impl Strategy<Value = Header> {
    let kind = prop::sample::select(&PacketType::ALL[..]);
    (kind, 0u8..ENCRYPTED, any::<u32>(), any::<u64>(), any::<u64>(), any::<u8>(), any::<u16>(), any::<u32>())
        .prop_map(|(kind, flags, connection, token, number, channel, generation, imm)| Header {
            kind,
            flags,
            connection,
            token,
            number,
            channel: Channel(channel),
            generation: Generation(generation),
            imm,
        })
}

fn frame(h: &Header, payload: &[u8]) -> Vec<u8> {
    let mut head = [0xee; HEADER];
    h.write(&mut head, payload);
    [&head[..], payload].concat()
}

const SAMPLE: Header = Header {
    kind: PacketType::Control,
    flags: 0x05,
    connection: 0x0102_0304,
    token: 0x1112_1314_1516_1718,
    number: 0x2122_2324_2526_2728,
    channel: Channel(0x31),
    generation: Generation(0x4142),
    imm: 0x5152_5354,
};

/// `SAMPLE` with the given bytes at `at` and a checksum that is right again.
fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut f = frame(&SAMPLE, b"payload");
    f[at..at + bytes.len()].copy_from_slice(bytes);
    f[32..36].fill(0);
    let crc = crc32c::crc32c(&f);
    f[32..36].copy_from_slice(&crc.to_be_bytes());
    f
}

#[test]
fn fields_stand_where_the_table_says() {
    let f = frame(&SAMPLE, b"payload");
    let expected = [
        0x12, 0x05, 0, 7, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23,
        0x24, //
        0x25, 0x26, 0x27, 0x28, 0, 0x31, 0x41, 0x42, 0x51, 0x52, 0x53, 0x54,
    ];
    assert_eq!(f[..32], expected);
    assert_eq!(f, forged(0, &[0x12]), "the checksum is CRC-32C as another crate computes it");
}

#[test]
fn intact_frames_without_meaning_are_refused_for_their_reason() {
    assert_eq!(parse(&forged(0, &[0x22])), Err(WireError::Version(2)));
    assert_eq!(parse(&forged(0, &[0x10])), Err(WireError::Type(0)));
    assert_eq!(parse(&forged(0, &[0x1d])), Err(WireError::Type(13)));
    assert_eq!(parse(&forged(1, &[0x80])), Err(WireError::Encrypted));
    assert_eq!(parse(&forged(2, &[0, 6])), Err(WireError::Length { got: 7, said: 6 }));
    assert_eq!(parse(&forged(24, &[1])), Err(WireError::Queue(0x0131_4142)));
    assert_eq!(parse(&[0x11; 35]), Err(WireError::Short(35)));
}

#[test]
fn the_longest_payload_has_a_length() {
    let payload = vec![7; MAX_PAYLOAD];
    assert_eq!(parse(&frame(&SAMPLE, &payload)), Ok((SAMPLE, &payload[..])));
}

proptest! {
    #[test]
    fn round_trip(h in header(), payload in prop::collection::vec(any::<u8>(), 0..9000)) {
        let f = frame(&h, &payload);
        prop_assert_eq!(parse(&f), Ok((h, &payload[..])));
    }

    /// At every length, with every instruction set that this length reaches.
    #[test]
    fn checksum_is_the_naive_one(h in header(), payload in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut f = frame(&h, &payload);
        let said = u32::from_be_bytes(f[32..36].try_into().unwrap());
        f[32..36].fill(0);
        let naive = !f.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |c, _| (c >> 1) ^ (0x82f6_3b78 & (c & 1).wrapping_neg()))
        });
        prop_assert_eq!(said, naive);
    }

    #[test]
    fn every_single_bit_flip_is_caught(h in header(), payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut f = frame(&h, &payload);
        for bit in 0..f.len() * 8 {
            f[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&f).is_err(), "bit {}", bit);
            f[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn every_cut_or_lengthened_frame_is_refused(h in header(), payload in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut f = frame(&h, &payload);
        for len in 0..f.len() {
            prop_assert!(parse(&f[..len]).is_err());
        }
        f.push(0);
        prop_assert!(parse(&f).is_err());
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), plausible: bool) {
        let mut bytes = bytes;
        if let (true, Some(first)) = (plausible, bytes.first_mut()) {
            *first = VERSION << 4 | *first & 0xf;
        }
        prop_assert!(parse(&bytes).is_err());
    }
}
