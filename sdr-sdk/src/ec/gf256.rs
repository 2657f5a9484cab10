//! GF(2^8) by tables: the oracle that every faster path is measured against. Plain slices, no unsafe code.
//!
//! The field is GF(2)\[x\] / (x^8 + x^4 + x^3 + x^2 + 1), 0x11D, in which x generates all non-zero elements; the same
//! as in ISA-L and most storage codes. Addition is XOR.

#![forbid(unsafe_code)]

/// The reduction polynomial without its leading term.
const POLY: u8 = 0x1d;

/// Powers of x, twice in a row so that a sum of two logarithms needs no reduction.
const EXP: [u8; 512] = {
    let mut t = [0; 512];
    let (mut i, mut x) = (0, 1u8);
    while i < 510 {
        t[i] = x;
        x = (x << 1) ^ (POLY * (x >> 7));
        i += 1;
    }
    t
};

/// Logarithms to base x; that of zero does not exist and is not read.
const LOG: [u8; 256] = {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 255 {
        t[EXP[i] as usize] = i as u8;
        i += 1;
    }
    t
};

/// All products, a row of 256 for each left factor: one look-up a byte.
pub(super) static PRODUCTS: [[u8; 256]; 256] = {
    let mut t = [[0; 256]; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while b < 256 {
            t[a][b] = EXP[LOG[a] as usize + LOG[b] as usize];
            b += 1;
        }
        a += 1;
    }
    t
};

/// `a * b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { EXP[LOG[a as usize] as usize + LOG[b as usize] as usize] }
}

/// `1 / a`, for a non-zero `a`. Zero has no inverse; it gives zero, which no caller asks for.
pub const fn inv(a: u8) -> u8 {
    if a == 0 { 0 } else { EXP[255 - LOG[a as usize] as usize] }
}

/// `a / b`, for a non-zero `b`.
pub const fn div(a: u8, b: u8) -> u8 {
    mul(a, inv(b))
}

/// `dst[i] += c * src[i]`, over as many bytes as the shorter of the two has.
pub fn mul_add(dst: &mut [u8], src: &[u8], c: u8) {
    match c {
        0 => {}
        1 => dst.iter_mut().zip(src).for_each(|(d, s)| *d ^= s),
        _ => {
            let row = &PRODUCTS[c as usize];
            dst.iter_mut().zip(src).for_each(|(d, s)| *d ^= row[*s as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook: shift, add, reduce.
    fn slow(mut a: u8, mut b: u8) -> u8 {
        let mut p = 0;
        while b != 0 {
            p ^= a * (b & 1);
            a = (a << 1) ^ (POLY * (a >> 7));
            b >>= 1;
        }
        p
    }

    #[test]
    fn tables_agree_with_long_multiplication() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow(a, b));
                assert_eq!(PRODUCTS[a as usize][b as usize], slow(a, b));
                if b != 0 {
                    assert_eq!(div(mul(a, b), b), a);
                }
            }
            if a != 0 {
                assert_eq!(mul(a, inv(a)), 1);
            }
        }
    }

    #[test]
    fn mul_add_is_bytewise() {
        let src: Vec<u8> = (0..=255).collect();
        for c in [0, 1, 2, 0x1d, 255] {
            let mut dst: Vec<u8> = src.iter().rev().copied().collect();
            mul_add(&mut dst, &src, c);
            for (i, d) in dst.iter().enumerate() {
                assert_eq!(*d, (255 - i as u8) ^ mul(c, i as u8));
            }
        }
    }
}
