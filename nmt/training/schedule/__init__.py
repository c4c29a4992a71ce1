"""The course of training: how far it is, at which learning rate, what is shown and when it ends."""
