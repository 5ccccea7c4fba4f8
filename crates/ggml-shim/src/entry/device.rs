// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device object: ROCKET0, or ROCKET-MODEL0 for the software model.
//!
//! Its type is ACCEL: an accelerator used together with the CPU backend. ggml then keeps the layers
//! and the KV cache on the CPU, without any flag. Flash attention stays on as long as the CPU has
//! that of single tokens. The device's buffer type is the CPU's plain memory, for a backend's
//! scratch memory. Weights lie where the CPU wants them, see [`crate::entry::buffer`].

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Once};

use npu_matmul::Engine;
use npu_offload::{AttentionChoice, AvailableMemory, ComputeType};

use crate::compute::classify::{self, NodeQuery};
use crate::compute::forked;
use crate::compute::rest;
use crate::compute::runtime::{Runtime, guard, own_name};
use crate::decide::config::SERVE;
use crate::decide::offload::{self, AttentionQuery, MatmulQuery, WeightOrigin};
use crate::entry::backend;
use crate::ggml::abi::{
    Backend, BufferType, DEVICE_TYPE_ACCEL, Device, DeviceCaps, DeviceInterface, DeviceObject,
    DeviceProps, Reg, Tensor,
};
use crate::ggml::log::{LogLevel, NAME};
use crate::ggml::reason::DeclineReason;
use crate::ggml::shared::GgmlPtr;
use crate::ggml::tensor_ref::TensorRef;
use crate::weights::watched_buffers::{PlacedWeights, WrittenRange};

/// Creates the device object of `reg`, which is never freed.
pub(crate) fn new(reg: GgmlPtr<Reg>) -> GgmlPtr<Device> {
    GgmlPtr::leaked(Box::new(DeviceObject {
        iface: DeviceInterface {
            get_name: name,
            get_description: description,
            get_memory: memory,
            get_type: device_type,
            get_props: props,
            init_backend,
            get_buffer_type: buffer_type,
            get_host_buffer_type: None,
            buffer_from_host_ptr: None,
            supports_op,
            supports_buft,
            offload_op: None,
            event_new: None,
            event_free: None,
            event_synchronize: None,
        },
        reg: reg.get(),
        context: ptr::null_mut(),
    }))
}

unsafe extern "C" fn name(_device: *mut Device) -> *const c_char {
    own_name()
}

unsafe extern "C" fn description(_device: *mut Device) -> *const c_char {
    guard("get_description", NAME.as_ptr(), |runtime| {
        runtime.description.as_ptr()
    })
}

/// Returns the limit of this library's memory, and how much of it weights left free. A device that
/// takes whole graphs has all of a model in the host's memory: for it, returns the total memory less
/// that limit, and the available memory less those free bytes.
fn budget() -> (usize, usize) {
    guard("get_memory", (0, 0), |runtime| {
        let (mut limit, mut free) = runtime.budget.limit_and_free();
        if runtime.host.evidence.is_some() {
            let memory = AvailableMemory::below(Path::new("/"));
            let [total, available] = memory.map_or([0; 2], |memory| [memory.total, memory.bytes()]);
            (limit, free) = (total.saturating_sub(limit), available.saturating_sub(free));
        }
        let bytes = |number| usize::try_from(number).unwrap_or(usize::MAX);
        (bytes(limit), bytes(free))
    })
}

unsafe extern "C" fn memory(_device: *mut Device, free: *mut usize, total: *mut usize) {
    let (limit, left) = budget();
    for (out, bytes) in [(free, left), (total, limit)] {
        if !out.is_null() {
            // SAFETY: not null, and ggml passes the addresses of two size_t
            // for us to write.
            unsafe { out.write(bytes) };
        }
    }
}

unsafe extern "C" fn device_type(_device: *mut Device) -> c_int {
    // If the host loads us before its CPU backend, that exists by now. Programs look for the CPU by
    // asking for types, before they choose where weights go.
    guard("get_type", DEVICE_TYPE_ACCEL, |runtime| {
        runtime.cpu.watch();
        DEVICE_TYPE_ACCEL
    })
}

unsafe extern "C" fn props(device: *mut Device, out: *mut DeviceProps) {
    if out.is_null() {
        return;
    }
    let (memory_total, memory_free) = budget();
    let props = DeviceProps {
        name: own_name(),
        // SAFETY: `description` ignores its argument.
        description: unsafe { description(device) },
        memory_free,
        memory_total,
        device_type: DEVICE_TYPE_ACCEL,
        device_id: ptr::null(),
        caps: DeviceCaps {
            asynchronous: false,
            host_buffer: false,
            buffer_from_host_ptr: false,
            events: false,
            mmap_support: true,
        },
    };
    // SAFETY: not null, and ggml passes the address of a `struct
    // ggml_backend_dev_props`, which has this layout, for us to write.
    unsafe { out.write(props) };
}

unsafe extern "C" fn init_backend(_device: *mut Device, _params: *const c_char) -> *mut Backend {
    guard("init_backend", ptr::null_mut(), |runtime| {
        if runtime.host.evidence.is_none() && is_rpc_server() {
            let line = format!(
                "ggml's RPC server sends whole graphs, but this device computes only some \
                 operations: start the server with {SERVE}=1"
            );
            runtime.log(LogLevel::Error, &line);
            return ptr::null_mut();
        }
        // ggml's RPC server computes without having asked for a type.
        runtime.cpu.watch();
        if !runtime.is_forked() {
            // A context is made after its model is loaded.
            let context = runtime.weight_context();
            runtime.weight_buffers.settle(&context);
            context.report();
        }
        let layout = runtime.host.layout;
        layout.new_backend(runtime.device.get(), &backend::CALLBACKS)
    })
}

/// Whether this process is ggml's RPC server (`rpc-server`, `ggml-rpc-server`), by its name: that
/// server would end with an assertion at its first graph. Other programs that embed the server get
/// an error at that graph.
fn is_rpc_server() -> bool {
    let name = std::env::args_os().next();
    let name = name.as_deref().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name.to_string_lossy().ends_with("rpc-server"))
}

unsafe extern "C" fn buffer_type(_device: *mut Device) -> *mut BufferType {
    guard("get_buffer_type", ptr::null_mut(), |runtime| {
        // Before the first buffer of ggml's RPC server, which asks for no device type.
        runtime.cpu.watch();
        runtime.cpu.buffer_type()
    })
}

unsafe extern "C" fn supports_op(_device: *mut Device, op: *const Tensor) -> bool {
    guard("supports_op", false, |runtime| {
        // SAFETY: ggml passes a live tensor whose operands are live, and waits
        // for the answer.
        let Some(op) = (unsafe { TensorRef::new(&runtime.host, op) }) else {
            return false;
        };
        if runtime.is_forked() {
            forked::report(runtime);
            return matches!(classify::classify(op), NodeQuery::NoWork);
        }
        leave_written(runtime, op);
        let answer = match classify::classify(op) {
            NodeQuery::NoWork => return true,
            NodeQuery::RowOp { node, matmul } => row_op(runtime, op, (node, &matmul)),
            NodeQuery::Other => Err(DeclineReason::NotAMatmul),
            NodeQuery::Attention(attention) => attends(runtime, &attention),
            NodeQuery::MatmulNode(matmul) => takes(runtime, op, &matmul),
        };
        match answer {
            Ok(()) => true,
            Err(reason) => {
                *runtime.stats().declined.entry(reason).or_default() += 1;
                false
            }
        }
    })
}

/// Whether our device takes the matmul `node`.
fn takes(
    runtime: &Runtime,
    node: TensorRef<'_>,
    matmul: &MatmulQuery,
) -> Result<(), DeclineReason> {
    if matmul.origin == WeightOrigin::Cache {
        advise_flash_attention(runtime, matmul);
    }
    let offload = offload::decide(matmul, &runtime.rules)?;
    if rest::is_resting(runtime) {
        return Err(DeclineReason::Resting);
    }
    if !runtime.trusts(offload.precision) {
        return Err(DeclineReason::Distrusted);
    }
    placed(runtime, node, matmul)
}

/// Logs once that attention comes as separate matmuls, which the user can change.
fn advise_flash_attention(runtime: &Runtime, matmul: &MatmulQuery) {
    static SAID: Once = Once::new();
    let is_token = matmul.activations.ne[1] == 1;
    if is_token || runtime.rules.attention == AttentionChoice::Never {
        return;
    }
    SAID.call_once(|| {
        let line = "flash attention is off: attention reaches the NPU as separate matmuls or not \
                    at all, which is slower. Remove `-fa off` or use `-fa on`";
        runtime.log(LogLevel::Warn, line);
    });
}

/// Whether our device takes attention. Its operands need no placement: keys and values lie in a KV
/// cache of the CPU, and the CPU writes them.
fn attends(runtime: &Runtime, attention: &AttentionQuery) -> Result<(), DeclineReason> {
    let shape = offload::decide_attention(attention, &runtime.rules)?;
    if rest::is_resting(runtime) {
        return Err(DeclineReason::Resting);
    }
    if !runtime.trusts(ComputeType::Fp16) {
        return Err(DeclineReason::Distrusted);
    }
    let can_attend = |engine: Arc<Engine>| engine.can_attend(&shape.batch);
    match runtime.engine().map(can_attend) {
        Some(Err(_)) => Err(DeclineReason::AttentionPlan),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Whether our device takes an operation on the rows of a matmul, for the CPU to compute: only if
/// it takes that matmul.
fn row_op(
    runtime: &Runtime,
    op: TensorRef<'_>,
    (node, matmul): (TensorRef<'_>, &MatmulQuery),
) -> Result<(), DeclineReason> {
    if runtime.cpu.computes(op) && takes(runtime, node, matmul).is_ok() {
        return Ok(());
    }
    Err(DeclineReason::NotAMatmul)
}

/// Leaves weights that `op` writes to the CPU: ggml asks about the operations of all graphs in
/// which our device has a part.
fn leave_written(runtime: &Runtime, op: TensorRef<'_>) {
    let Some((buffer, name, range)) = classify::written_weights(op) else {
        return;
    };
    if runtime.weight_buffers.leave_written(buffer, &range) != WrittenRange::Known {
        let line = format!("{name} stays on the CPU from now on: a graph writes it");
        runtime.log(LogLevel::Info, &line);
    }
}

/// Whether our device can use the weights of the matmul `op` where they lie.
fn placed(runtime: &Runtime, op: TensorRef<'_>, matmul: &MatmulQuery) -> Result<(), DeclineReason> {
    let weights = op.operand(0).ok_or(DeclineReason::NotAMatmul)?;
    let buffer = weights.buffer();
    match matmul.origin {
        WeightOrigin::Plain => {
            let buffers = &runtime.weight_buffers;
            let decided = buffers.decide_when_used(&runtime.weight_context(), buffer, weights)?;
            let refusal = decided.decision.refusal();
            refusal.map_or(Ok(()), |why| Err(why.into()))
        }
        WeightOrigin::Rearranged => {
            let entry = runtime.weight_buffers.get(buffer);
            let entry = entry.ok_or(DeclineReason::Unseen)?;
            let decided = entry.decided(PlacedWeights::of(weights));
            let decided = decided.ok_or(DeclineReason::NotPacked)?;
            match decided.decision.refusal() {
                Some(why) => Err(why.into()),
                None if decided.are_packed() => Ok(()),
                None => Err(DeclineReason::NotPacked),
            }
        }
        // Others need no placement, or are declined.
        WeightOrigin::Cache
        | WeightOrigin::Unallocated
        | WeightOrigin::Computed
        | WeightOrigin::Input
        | WeightOrigin::Asked
        | WeightOrigin::Elsewhere => matmul.origin.check(),
    }
}

unsafe extern "C" fn supports_buft(_device: *mut Device, buffer_type: *mut BufferType) -> bool {
    guard("supports_buft", false, |runtime| {
        !buffer_type.is_null()
            && (runtime.cpu.is_extra(buffer_type)
                // SAFETY: not null, and ggml passes one of its buffer types,
                // which live for ever.
                || unsafe { (runtime.host.buft_is_host)(buffer_type) })
    })
}
