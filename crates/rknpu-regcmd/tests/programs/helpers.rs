// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests: tasks, buffers and words.

use std::collections::BTreeMap;

use rknpu_regcmd::{
    Before, Binding, BufferId, ChipProfile, Iova, LintContext, MatmulForm, MatmulTask,
    ProgramOptions, ReuseRule, Severity, TaskType, Word, lint,
};

pub(crate) const CHIP: ChipProfile = ChipProfile::RK3588;
pub(crate) const IDS: [BufferId; 3] = [BufferId(10), BufferId(11), BufferId(12)];

/// A matmul whose operands begin at the start of their buffers.
pub(crate) fn task(ty: TaskType, m: u32, k: u32, n: u32) -> MatmulTask {
    let [a, b, c] = IDS.map(|id| id.at(0));
    MatmulTask {
        ty,
        m,
        k,
        n,
        a,
        b,
        c,
    }
}

/// Options of form A, with this rule of reuse.
pub(crate) const fn form_a(reuse: ReuseRule) -> ProgramOptions {
    ProgramOptions {
        form: MatmulForm::A,
        spare_data_bank: false,
        reuse,
    }
}

pub(crate) fn bind(places: [u32; 3], lengths: [u64; 3]) -> [Binding; 3] {
    [0, 1, 2].map(|i| Binding {
        id: IDS[i],
        iova: Iova(places[i]),
        len: u32::try_from(lengths[i]).unwrap(),
    })
}

/// The lengths of buffers that fit a matmul exactly.
pub(crate) fn lengths(task: &MatmulTask) -> [u64; 3] {
    [task.a_bytes(), task.b_bytes(), task.c_bytes()]
}

/// Values by target and offset, in any order of the words.
pub(crate) fn values(words: &[Word]) -> BTreeMap<(u16, u16), u32> {
    let places = words.iter().map(|w| ((w.target(), w.offset()), w.value()));
    places.collect()
}

/// The findings above a note, as text.
pub(crate) fn warnings(words: &[Word], before: Before) -> Vec<String> {
    let context = LintContext {
        before,
        ..LintContext::default()
    };
    let findings = lint(words, &context).into_iter();
    let worse = findings.filter(|finding| finding.severity > Severity::Note);
    worse.map(|finding| finding.to_string()).collect()
}
