// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls: prepared once, run many times, several at once.

use std::fmt;
use std::sync::Arc;

use crate::engine::activations::{FloatRows, QuantisedRows};
use crate::engine::packed::PackedWeights;
use crate::engine::{Engine, check_int4, matrix};
use crate::exec::{AbortCheck, Again, CheckedCall, EncodedRows, Epilogue, MatmulRun, Operand};
use crate::numbers::operands::{Activations, Outputs};
use crate::plan::Plan;
use crate::plan::error::{EngineCallError, Error};
use crate::plan::first_run::MatmulKind;
use crate::plan::kept_plan::{KeptPlan, PlanKey};
use crate::plan::weight_format::WeightFormat;

/// A prepared matmul: C = A x B^T for given weights and a given number of rows, with its plan.
///
/// The buffers belong to the engine. Matmuls that run one after another, such as those of a model's
/// layers, share them. The first run allocates missing buffers and links the programs; later runs
/// allocate nothing on the devices.
///
/// The engine keeps the plans of the latest row counts, so preparing the same matmul again is
/// cheap. A caller whose M changes need not keep a `Matmul` for each M.
#[derive(Clone)]
pub struct Matmul<'a> {
    engine: &'a Engine,
    weights: &'a PackedWeights,
    prepared: Arc<KeptPlan>,
}

impl Engine {
    /// Prepares a matmul of `m` rows with these weights: plans all tiles, jobs and programs.
    ///
    /// # Errors
    /// [`Error::ForeignWeights`] for weights of another engine, [`Error::Plan`] if the sizes have no
    /// plan, [`Error::Distrusted`] if the precision is disabled.
    pub fn prepare<'a>(
        &'a self,
        weights: &'a PackedWeights,
        m: usize,
    ) -> Result<Matmul<'a>, Error> {
        Ok(Matmul {
            engine: self,
            weights,
            prepared: self.prepared(weights, m)?,
        })
    }

    /// Computes several independent matmuls together: the heads or experts of a layer, or several
    /// weights with the same activations.
    ///
    /// Calls that pass the same slice of activations quantise it once, and pack it once if their
    /// plans tile it the same way. Calls share SUBMITs, and jobs if they have the same type. The
    /// CPU packs the next activations and unpacks earlier results while the NPU computes.
    ///
    /// ```no_run
    /// # fn example(
    /// #     engine: &npu_matmul::Engine, [q, k]: [npu_matmul::PackedWeights; 2], x: &[i8],
    /// #     queries: &mut [i32], keys: &mut [i32],
    /// # ) -> Result<(), npu_matmul::Error> {
    /// let q = engine.prepare(&q, 512)?;
    /// let k = engine.prepare(&k, 512)?;
    /// Ok(engine.run([q.call(x, queries), k.call(x, keys)])?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Matmul::run`], with the index of the call. Operands are checked before anything runs.
    /// After an error C is undefined for all calls.
    pub fn run<'a>(
        &self,
        calls: impl IntoIterator<Item = MatmulCall<'a>>,
    ) -> Result<(), EngineCallError> {
        self.run_again(calls, Again::Once)
    }

    /// As [`Engine::run`], for a caller that may give up. Before the engine runs a job again that
    /// the driver killed or dropped, it calls `is_aborted`, possibly on several threads. If the
    /// answer is `true`, the call fails with [`Error::Aborted`].
    ///
    /// # Errors
    /// As [`Engine::run`]; [`Error::Aborted`].
    pub fn run_abortable<'a>(
        &self,
        calls: impl IntoIterator<Item = MatmulCall<'a>>,
        is_aborted: AbortCheck<'_>,
    ) -> Result<(), EngineCallError> {
        self.run_again(calls, Again::OnceUnless(is_aborted))
    }

    pub(crate) fn run_again<'a>(
        &self,
        calls: impl IntoIterator<Item = MatmulCall<'a>>,
        again: Again<'_>,
    ) -> Result<(), EngineCallError> {
        let calls: Vec<_> = calls.into_iter().collect();
        for (index, call) in calls.iter().enumerate() {
            call.check(self).map_err(EngineCallError::of(index))?;
        }
        let mut quantised = Vec::new();
        let mut checked = Vec::with_capacity(calls.len());
        for (index, call) in calls.into_iter().enumerate() {
            let call = call.checked(&mut quantised);
            checked.push(call.map_err(EngineCallError::of(index))?);
        }
        MatmulRun::new(self, checked, quantised, again).finish()
    }

    /// Plans a matmul of `m` rows, or returns the plan kept for it.
    fn prepared(&self, weights: &PackedWeights, m: usize) -> Result<Arc<KeptPlan>, Error> {
        if weights.engine != self.id {
            return Err(Error::ForeignWeights);
        }
        let dtype = weights.dtype();
        if !self.is_usable(dtype) {
            return Err(Error::Distrusted {
                kind: MatmulKind::resident(dtype),
            });
        }
        let question = PlanKey {
            weights: Arc::clone(&weights.plan),
            m,
            options: self.current_options(),
        };
        let make = |question: &PlanKey| {
            let prepared = Arc::new(KeptPlan::new(question)?);
            self.totals().plans += 1;
            Ok(prepared)
        };
        self.matmuls.get_or_make(question, make, drop)
    }

    /// The plan to run now: planned again if a wrong result has changed the options since.
    fn up_to_date(
        &self,
        weights: &PackedWeights,
        prepared: &Arc<KeptPlan>,
    ) -> Result<Arc<KeptPlan>, Error> {
        let question = &prepared.question;
        if self.is_usable(weights.dtype()) && self.current_options() == question.options {
            return Ok(Arc::clone(prepared));
        }
        self.prepared(weights, question.m)
    }
}

impl<'a> Matmul<'a> {
    /// Packs A, multiplies on the NPU and unpacks C. These steps overlap in parts. `a` is M x K,
    /// `c` is M x N.
    ///
    /// FP16 weights: each `f32` result is within (2^-20 + (T - 1) * 2^-24) * sum|a*b| plus half an
    /// ulp of the exact sum, where T is the number of K tiles.
    ///
    /// Quantised weights: rows of A are quantised like the weights, with scales that clip nothing.
    /// C is `sum * row scale * channel scale`, rounded once.
    ///
    /// # Errors
    /// See [`Error`]: operands of the wrong size or type, or a device that fails.
    pub fn run<'b>(
        &'b self,
        a: impl Into<Activations<'b>>,
        c: impl Into<Outputs<'b>>,
    ) -> Result<(), Error> {
        Ok(self.engine.run([self.call(a, c)])?)
    }

    /// Combines this matmul with its operands, for [`Engine::run`].
    pub fn call<'b>(
        &'b self,
        a: impl Into<Activations<'b>>,
        c: impl Into<Outputs<'b>>,
    ) -> MatmulCall<'b> {
        MatmulCall {
            matmul: self,
            a: a.into(),
            c: c.into(),
        }
    }

    /// The plan of this matmul.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.prepared.plan
    }
}

impl fmt::Debug for Matmul<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matmul")
            .field("m", &self.plan().m)
            .field("weights", &self.weights)
            .finish_non_exhaustive()
    }
}

/// A prepared matmul with its operands, for [`Engine::run`].
#[derive(Debug)]
#[must_use = "matmuls are computed by `Engine::run`"]
pub struct MatmulCall<'a> {
    matmul: &'a Matmul<'a>,
    a: Activations<'a>,
    c: Outputs<'a>,
}

impl<'a> MatmulCall<'a> {
    /// Checks that the operands fit this matmul.
    fn check(&self, engine: &Engine) -> Result<(), Error> {
        let (weights, m) = (self.matmul.weights, self.matmul.plan().m);
        let (n, k, format) = (weights.n(), weights.k(), weights.format());
        if weights.engine != engine.id {
            return Err(Error::ForeignWeights);
        }
        let is_integer = matches!(format, WeightFormat::Int8 | WeightFormat::Int4);
        match &self.c {
            Outputs::I32(c) if is_integer => matrix("C", c, m, n).map(drop),
            Outputs::F32(c) if !is_integer => matrix("C", c, m, n).map(drop),
            c => Err(Error::WrongOutput {
                weights: format.name(),
                output: match c {
                    Outputs::I32(_) => "int32",
                    Outputs::F32(_) => "binary32",
                },
            }),
        }?;
        match (self.a, format) {
            (Activations::I8(a), WeightFormat::Int8) => matrix("A", a, m, k).map(drop),
            (Activations::I8(a), WeightFormat::Int4) => {
                matrix("A", a, m, k)?;
                check_int4("A", a)
            }
            (Activations::F16(a), WeightFormat::Fp16) => matrix("A", a, m, k).map(drop),
            (Activations::F32(a), WeightFormat::Quantised(_)) => matrix("A", a, m, k).map(drop),
            (a, _) => Err(Error::WrongWeights {
                expected: match a {
                    Activations::I8(_) => "int8 or int4",
                    Activations::F16(_) => "fp16",
                    Activations::F32(_) => "quantised",
                },
                actual: format.name(),
            }),
        }
    }

    /// The call to run, whose operands [`Self::check`] has checked. Adds rows to quantise to
    /// `quantised`.
    fn checked(self, quantised: &mut Vec<QuantisedRows<'a>>) -> Result<CheckedCall<'a>, Error> {
        let Matmul {
            engine,
            weights,
            ref prepared,
        } = *self.matmul;
        let prepared = engine.up_to_date(weights, prepared)?;
        let (m, k) = (prepared.plan.m, weights.k());
        let mismatch = || Error::WrongWeights {
            expected: "quantised",
            actual: weights.format().name(),
        };
        let rows = match self.a {
            Activations::F16(a) => Operand::Halves(matrix("A", a, m, k)?),
            Activations::I8(a) => Operand::Integers(matrix("A", a, m, k)?),
            Activations::F32(floats) => {
                let scales = weights.scales.as_ref().ok_or_else(mismatch)?;
                let of = FloatRows {
                    floats,
                    k,
                    quantisation: scales.quantisation,
                    rotation: scales.rotation.as_ref(),
                };
                Operand::Quantised(QuantisedRows::find_or_add(quantised, engine, of)?)
            }
        };
        let epilogue = match (self.c, &weights.scales, rows) {
            (Outputs::F32(c), Some(scales), Operand::Quantised(rows)) => {
                Epilogue::Dequantised {
                    // i32 and f32 both have 4 bytes.
                    c: zerocopy::transmute_mut!(c),
                    rows,
                    columns: &scales.columns,
                }
            }
            (Outputs::I32(c), ..) => Epilogue::I32(c),
            (Outputs::F32(c), ..) => Epilogue::F32(c),
        };
        tracing::trace!(plan = %prepared.plan, "matmul");
        Ok(CheckedCall {
            weights,
            prepared,
            a: EncodedRows {
                rows,
                format: weights.format(),
            },
            epilogue,
        })
    }
}
