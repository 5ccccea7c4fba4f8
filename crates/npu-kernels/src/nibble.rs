// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signed 4-bit integers, two in a byte, the even element in the low nibble.

/// A pair of elements as in memory: the even one in the low byte.
const fn pair(elements: [i8; 2]) -> u16 {
    let [even, odd] = elements;
    u16::from_le_bytes([even.cast_unsigned(), odd.cast_unsigned()])
}

/// Packs the low nibbles of a pair.
const fn low_nibbles(pair: u16) -> u8 {
    ((pair & 0x0f) | (pair >> 4 & 0xf0)) as u8
}

fastest! {
    /// Packs the low four bits of each element. An element without a partner gets a zero. Bytes or
    /// elements beyond the shorter slice are unchanged.
    pub fn pack_low(elements: &[i8], out: &mut [u8]) {
        let (pairs, odd) = elements.as_chunks::<2>();
        for (byte, &elements) in out.iter_mut().zip(pairs) {
            *byte = low_nibbles(pair(elements));
        }
        if let (Some(byte), &[last]) = (out.get_mut(pairs.len()), odd) {
            *byte = low_nibbles(pair([last, 0]));
        }
    }
}

/// The index of the first value outside `min..=max`, if any.
#[must_use]
pub fn first_outside(values: &[i8], min: i8, max: i8) -> Option<usize> {
    /// Elements tested at once: long enough to vectorise the test of a block, short enough to
    /// search a failed block one by one.
    const BLOCK: usize = 4096;
    let mut blocks = values.chunks(BLOCK);
    let block = blocks.position(|block| any_outside(block, min, max))?;
    let start = block * BLOCK;
    let mut from_there = values[start..].iter();
    let at = from_there.position(|v| !(min..=max).contains(v));
    at.map(|at| start + at)
}

fastest! {
    /// Whether a value is outside `min..=max`.
    #[must_use]
    fn any_outside(values: &[i8], min: i8, max: i8) -> bool {
        values
            .iter()
            .fold(false, |any, v| any | (*v < min) | (*v > max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Element `index` of a packed array.
    fn element(packed: &[u8], index: usize) -> i8 {
        let bits = packed[index / 2] >> (index % 2 * 4) & 15;
        (bits << 4).cast_signed() >> 4
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn low_bits_are_kept(a in prop::collection::vec(any::<i8>(), 0..300)) {
            let mut packed = vec![0xa5; a.len().div_ceil(2) + 1];
            pack_low(&a, &mut packed);
            for (index, &a) in a.iter().enumerate() {
                prop_assert_eq!(element(&packed, index), a << 4 >> 4);
            }
            // Checks the missing partner and the byte behind.
            if a.len() % 2 == 1 {
                prop_assert_eq!(element(&packed, a.len()), 0);
            }
            prop_assert_eq!(packed.last(), Some(&0xa5));
        }

        #[test]
        fn range_search(
            values in prop::collection::vec(-9..=8_i8, 0..600),
            before in 0..9000_usize,
        ) {
            let mut all = vec![0; before];
            all.extend(values);
            let expected = all.iter().position(|v| *v < -8 || *v > 7);
            prop_assert_eq!(first_outside(&all, -8, 7), expected);
        }
    }

    #[test]
    fn less_room_than_elements() {
        let mut out = [0; 1];
        pack_low(&[1, 2, 3, 4], &mut out);
        assert_eq!(out, [0x21]);
        pack_low(&[], &mut out);
        assert_eq!(out, [0x21]);
    }
}
