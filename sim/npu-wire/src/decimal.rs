// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decimal text of numbers, without an allocation.

/// Digits of the largest number.
pub const DIGITS: usize = 20;

/// Writes a number to the end of `room`, and returns its digits.
#[must_use]
pub fn decimal(mut number: u64, room: &mut [u8; DIGITS]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn digits_are_the_numbers(any in any::<u64>(), shift in 0_u32..64) {
            for number in [any >> shift, u64::MAX, 0] {
                let mut room = [0; DIGITS];
                let digits = decimal(number, &mut room).to_vec();
                prop_assert_eq!(digits, number.to_string().into_bytes());
            }
        }
    }
}
