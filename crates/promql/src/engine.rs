//! Evaluation of a checked tree.
