// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the structures and request numbers of this crate, in the format in which
//! `abi/print_abi.c` prints those of the kernel's headers.

use rocket_uapi::sys::{LAYOUTS, REQUESTS};

fn main() {
    for layout in LAYOUTS {
        let name = layout.name;
        println!("struct {name} size {} align {}", layout.size, layout.align);
        for (field, offset, size) in layout.fields {
            println!("field {name}.{field} offset {offset} size {size}");
        }
    }
    for (name, request) in REQUESTS {
        println!("ioctl {name} {request:#010x}");
    }
}
