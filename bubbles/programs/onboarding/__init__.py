"""The parts of `bubbles onboard`: what is wished for, the conversation about it, and the one question that shows whether it holds."""
