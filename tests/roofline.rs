//! Which compute roof the bricks of real plans have.

mod common;

use cbtop::engine::Config;
use cbtop::engine::cpu::KernelSet;
use cbtop::model::brick::BrickId;
use cbtop::profiler::roofline::int8_bricks;

const PRODUCTS: [BrickId; 8] = [
    BrickId::QProj,
    BrickId::KProj,
    BrickId::VProj,
    BrickId::OProj,
    BrickId::GateProj,
    BrickId::UpProj,
    BrickId::DownProj,
    BrickId::LmHead,
];

fn with(kernels: KernelSet) -> Config {
    Config {
        kernels,
        ..Config::for_context(64)
    }
}

#[test]
fn products_with_quantised_weights_are_int8_on_vector_kernels() {
    for file in ["llama.Q4_K_M.gguf", "qwen2.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
        let loaded = common::fixture(file);
        let plan = &loaded.model.plan;
        assert!(int8_bricks(plan, &with(KernelSet::Scalar)).is_empty());
        for set in KernelSet::available() {
            if set != KernelSet::Scalar {
                assert_eq!(int8_bricks(plan, &with(set)), PRODUCTS, "{file} {set}");
            }
        }
    }
}
