// SPDX-License-Identifier: MIT OR Apache-2.0
//! What plans of transformers' products are predicted to take: the tables of
//! docs/matmul-figures.md.

pub(crate) mod expected;
mod layers;
mod products;

use std::fmt::Write;

use anyhow::{Result, ensure};
use npu_matmul::plan::{
    Candidate, Conditions, INT4_TYPICAL_CHANNELS, WeightPlan, int4_depth_within,
};
use npu_matmul::{Dtype, Plan, PlanOptions, Profile};
use rknpu_regcmd::timing::{Parts, seconds};

pub(crate) use products::FDS;
use products::{LayerProduct, PRODUCTS, RESIDENT};

/// Name of the section of docs/matmul-figures.md that the tables stand in.
pub(crate) const SECTION: &str = "plans";

/// Rows: sequences that are decoded together, a short prompt, llama.cpp's default
/// batch.
const ROWS: [usize; 4] = [8, 32, 128, BATCH];

/// llama.cpp's default batch, of which the parts of a call are told.
const BATCH: usize = 512;

/// Clocks, MHz, and the most that a call of [`BATCH`] rows should take at them, over the
/// least possible: what mainline leaves, and what most figures are of. At 1000 a core
/// moves no more than at 600.
const AIMS: [(u64, f64); 2] = [(200, 1.3), (600, 1.4)];

/// Of the precisions that have that aim, what is so small that it has none.
const WITHOUT_AIM: [(&str, &str); 2] = [("Gemma-3-1B", "query"), ("Gemma-3-1B", "key, value")];

/// The least share of the shorter of CPU and NPU that should run beside the other.
const HIDDEN_LEAST: f64 = 0.8;

/// The most that products may pass through the CPU's caches, as a multiple of
/// what must cross.
const CACHE_BYTES_MAX: f64 = 1.5;

/// The operand types that one table is about.
struct Operands {
    name: &'static str,
    dtype: Dtype,
    int4_depth: Option<usize>,
}

const fn table(name: &'static str, dtype: Dtype, int4_depth: Option<usize>) -> Operands {
    Operands {
        name,
        dtype,
        int4_depth,
    }
}

const OPERANDS: [Operands; 4] = [
    table("int8", Dtype::Int8, None),
    table("fp16", Dtype::Fp16, None),
    table("int4, any weights", Dtype::Int4, None),
    table(
        "int4, weights of magnitude 2 on average",
        Dtype::Int4,
        Some(INT4_TYPICAL_CHANNELS),
    ),
];

/// A product whose call takes longer than it should, or hides less.
struct Miss {
    operands: &'static str,
    product: &'static LayerProduct,
    clock: u64,
    aim: f64,
    best: Candidate,
}

/// The tables, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let mut page = String::new();
    let mut most_passed = 0.0_f64;
    let mut misses = Vec::new();
    for operands in &OPERANDS {
        write!(
            page,
            "\n### {}\n\n| model | product | K | N |",
            operands.name
        )?;
        for (clock, _) in AIMS {
            for rows in ROWS {
                write!(page, " M {rows}, {clock} MHz |")?;
            }
        }
        page.push_str("\n|---|---|---|---|");
        page.push_str(&"---|".repeat(ROWS.len() * AIMS.len()));
        page.push('\n');
        let mut batch = Vec::new();
        for product in &PRODUCTS {
            let LayerProduct { model, what, k, n } = product;
            write!(page, "| {model} | {what} | {k} | {n} |")?;
            for (clock, aim) in AIMS {
                for rows in ROWS {
                    let chosen = chosen(operands, product, rows, clock)?;
                    let best = chosen.best;
                    if rows == BATCH {
                        most_passed = most_passed.max(chosen.passed);
                        let is_small = WITHOUT_AIM.contains(&(*model, *what));
                        let has_aim = operands.dtype != Dtype::Int4 && !is_small;
                        let hidden = best.call.overlapped();
                        if has_aim && (over_bound(&best) > aim || hidden < HIDDEN_LEAST) {
                            misses.push(Miss {
                                operands: operands.name,
                                product,
                                clock,
                                aim,
                                best: best.clone(),
                            });
                        }
                        batch.push(parts_of_call(product, clock, chosen.steps, &best));
                    }
                    write!(page, " {:.2} |", over_bound(&best))?;
                }
            }
            page.push('\n');
        }
        write!(
            page,
            "\n{}, M {BATCH}, in ms; what is hidden is the share of the shorter of CPU and NPU \
             that runs beside the other:\n\n\
             | product | K | N | MHz | steps | call | NPU | pack | unpack | hidden | waits for |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n{}",
            operands.name,
            batch.concat()
        )?;
    }
    ensure!(
        most_passed <= CACHE_BYTES_MAX,
        "a plan passes {most_passed:.2} times the bytes through PREP_BO and FINI_BO that must \
         cross; {CACHE_BYTES_MAX} is the most"
    );
    writeln!(
        page,
        "\nBytes that PREP_BO and FINI_BO pass through the CPU's caches: in the worst of the \
         products of M {BATCH} {most_passed:.2} times those that must cross."
    )?;
    page.push_str(&int8_against_fp16()?);
    page.push_str(&layers::markdown()?);
    page.push_str(&missed(&misses));
    Ok(page)
}

/// How many times the bound the whole call takes.
fn over_bound(best: &Candidate) -> f64 {
    seconds(best.call.call_ps) / seconds(best.prediction.bound_ps().max(1))
}

/// The parts of a call, as a line of a table.
fn parts_of_call(product: &LayerProduct, clock: u64, steps: usize, best: &Candidate) -> String {
    let LayerProduct { model, what, k, n } = product;
    let ms = |ps: u64| seconds(ps) * 1e3;
    let call = &best.call;
    format!(
        "| {model} {what} | {k} | {n} | {clock} | {steps} | {:.2} | {:.2} | {:.2} | {:.2} | \
         {:.0} % | {} |\n",
        ms(call.call_ps),
        ms(call.npu_ps),
        ms(call.pack_ps),
        ms(call.unpack_ps),
        100.0 * call.overlapped(),
        call.waits_for()
    )
}

/// How many times as fast as FP16 INT8 is, as a table.
fn int8_against_fp16() -> Result<String> {
    let mut page = format!(
        "\n### INT8 against FP16\n\n\
         M {BATCH}: the time of the FP16 call over that of the INT8 call.\n\n\
         | product | K | N | {} MHz | {} MHz |\n|---|---|---|---|---|\n",
        AIMS[0].0, AIMS[1].0
    );
    for product in PRODUCTS.iter().chain(&RESIDENT) {
        let LayerProduct { model, what, k, n } = product;
        write!(page, "| {model} {what} | {k} | {n} |")?;
        for (clock, _) in AIMS {
            let [int8, fp16, ..] = &OPERANDS;
            let of = |operands| chosen(operands, product, BATCH, clock);
            let [int8, fp16] = [of(int8)?, of(fp16)?].map(|chosen| chosen.best.call.call_ps);
            write!(page, " {:.2} |", seconds(fp16) / seconds(int8))?;
        }
        page.push('\n');
    }
    Ok(page)
}

/// The table of calls that take longer than they should.
fn missed(misses: &[Miss]) -> String {
    let mut page = format!(
        "\n### Calls beyond the aim\n\n\
         M {BATCH}; at most {} times the bound at {} MHz and {} at {}, and at least {} % of \
         the shorter of CPU and NPU hidden.\n\n\
         | operands | product | MHz | call | aim | hidden | MACs | memory | edges | driver | not \
         hidden |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        AIMS[0].1,
        AIMS[0].0,
        AIMS[1].1,
        AIMS[1].0,
        100.0 * HIDDEN_LEAST
    );
    for miss in misses {
        let prediction = &miss.best.prediction;
        let bound = prediction.bound_ps().max(1) as f64;
        let Parts {
            edges_ps,
            computing_ps,
            memory_ps,
        } = prediction.parts;
        let LayerProduct { model, what, .. } = miss.product;
        let call = &miss.best.call;
        let not_hidden = call.call_ps.saturating_sub(call.npu_ps);
        let mut line = format!(
            "| {} | {model} {what} | {} | {:.2} | {} | {:.0} % |",
            miss.operands,
            miss.clock,
            over_bound(&miss.best),
            miss.aim,
            100.0 * call.overlapped()
        );
        let driver_ps = prediction.driver_ps;
        for part in [computing_ps, memory_ps, edges_ps, driver_ps, not_hidden] {
            line.push_str(&format!(" {:.2} |", part as f64 / bound));
        }
        page.push_str(&line);
        page.push('\n');
    }
    page
}

/// Options for products of so many rows, at a clock in MHz.
fn options(rows: usize, clock_mhz: u64) -> PlanOptions {
    PlanOptions {
        conditions: Conditions {
            rows,
            ..Conditions::default()
        },
        profile: Profile::built_in().at_clock(clock_mhz * 1_000_000).into(),
        ..PlanOptions::default()
    }
}

/// What is chosen for a product.
struct Chosen {
    best: Candidate,
    /// Bytes that pass the CPU's caches, as a multiple of what must cross.
    passed: f64,
    /// Steps of its plan.
    steps: usize,
}

/// The cheapest way to cut a product's weights, and its plan.
fn chosen(
    operands: &Operands,
    product: &LayerProduct,
    rows: usize,
    clock_mhz: u64,
) -> Result<Chosen> {
    let any = options(rows, clock_mhz);
    let LayerProduct { n, k, .. } = *product;
    // How many copies there are stays when values are known, as in an engine.
    let copies = WeightPlan::new(operands.dtype, n, k, FDS, &any)?.replicas;
    let options = PlanOptions {
        int4_depth: (operands.int4_depth).map(|channels| int4_depth_within(k, channels)),
        replicate: Some(copies > 1),
        ..any
    };
    let best = Candidate::new(
        WeightPlan::new(operands.dtype, n, k, FDS, &options)?,
        &options,
    )?;
    let plan = Plan::new(&best.weights, rows, &options)?;
    let [needed, passed] = plan.cache_bytes();
    Ok(Chosen {
        passed: passed as f64 / needed.max(1) as f64,
        steps: plan.steps().len(),
        best,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_is_a_line_of_each_table() {
        let page = markdown().unwrap();
        let lines = page.lines().filter(|line| {
            PRODUCTS
                .iter()
                .any(|product| line.starts_with(&format!("| {} ", product.model)))
        });
        // A line of factors, and one of each clock.
        let each = 1 + AIMS.len();
        // And one of INT8 against FP16.
        let tables = OPERANDS.len() * each + 1;
        assert_eq!(lines.count(), tables * PRODUCTS.len());
    }
}
