// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the body of a kernel for several instruction sets.

/// Defines a function that runs its body with the widest vectors of the host.
///
/// The body becomes an `#[inline(always)]` function, so it is compiled again inside each caller,
/// with that caller's instructions. Floats give the same bits everywhere: Rust neither reorders nor
/// fuses them. The standard library detects the host's features once and caches them.
macro_rules! fastest {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$generic:ident: $bound:path>)? ($($argument:ident: $kind:ty),* $(,)?)
            $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        $vis fn $name $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $result)? {
            #[inline(always)]
            #[deny(unsafe_code)]
            fn body $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $result)? {
                    body$(::<$generic>)?($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $result)? {
                    body$(::<$generic>)?($($argument),*)
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the host has just these four features.
                    return unsafe { avx512$(::<$generic>)?($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the host has AVX2.
                    return unsafe { avx2$(::<$generic>)?($($argument),*) };
                }
            }
            body$(::<$generic>)?($($argument),*)
        }
    };
}
