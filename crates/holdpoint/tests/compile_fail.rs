//! What must not compile: nothing runs past the gate, and the compiler is the first to say so.

#[test]
fn an_execution_without_the_gate_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
