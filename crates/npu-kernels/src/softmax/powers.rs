// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constants, types and the loop shared by all versions of the exponential.

/// Probabilities of an atom.
pub const LANES: usize = 8;

/// The probabilities of one row for eight keys, in binary16, or its scores for four keys, in
/// binary32; little endian.
pub type Atom = [u8; 2 * LANES];

/// Rows whose atoms fill a cache line.
pub(super) const GROUP: usize = 4;

/// The probability of the largest score. A probability of 2^-28 of this is still a normal number of
/// binary16.
pub const ONE: f32 = 16_384.0;

/// Exponents below this become 0 in binary16 times [`ONE`]: the smallest number is 2^-24.
pub(super) const EXPONENT_MIN: f32 = -40.0;

/// Adding this to a float rounds it to an integer in its low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// As [`ROUND`]; the integer is the exponent of the result times [`ONE`].
pub(super) const ROUND_TO_ONE: f32 = ROUND + 14.0;

/// 2^f for f from -1/2 to 1/2, 1 at 0: the cubic with the least maximum of the relative error,
/// 1.02e-4.
pub(super) const POWERS: [f32; 3] = [0.693_282_96, 0.242_211_06, 0.055_008_937];

/// Writes all atoms: `atom` of their scores and of `splat` of the maximum of their row.
#[inline(always)]
pub(super) fn each_atom<V: Copy>(
    (scores, stride): (&[f32], usize),
    maxima: &[f32],
    surfaces: &mut [&mut [Atom]],
    splat: impl Fn(f32) -> V,
    atom: impl Fn(&[f32; LANES], V) -> Atom,
) {
    let groups = scores.chunks_exact((GROUP * stride).max(1));
    let maxima = maxima.as_chunks::<GROUP>().0;
    for (group, (scores, maxima)) in groups.zip(maxima).enumerate() {
        let [a, b, c, d] = maxima.map(&splat);
        let rows = |at: usize| scores[at * stride..][..stride].as_chunks::<LANES>().0;
        let scores = rows(0).iter().zip(rows(1)).zip(rows(2)).zip(rows(3));
        for (surface, (((row_a, row_b), row_c), row_d)) in surfaces.iter_mut().zip(scores) {
            let Some(to) = surface.as_chunks_mut::<GROUP>().0.get_mut(group) else {
                return;
            };
            *to = [
                atom(row_a, a),
                atom(row_b, b),
                atom(row_c, c),
                atom(row_d, d),
            ];
        }
    }
}
