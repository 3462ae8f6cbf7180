//! Hyperparameters per architecture, weights, and the list of bricks a layer is made of.

pub mod brick;
