"""Eager checkpoints: state, and what was sent, are durable before anything leaves.

The eager regime of Isard and Abadi, "Falkirk Wheel: Rollback Recovery for Dataflow Systems", 2015, section 2.3. Strong
productions of MillWheel (Akidau et al., VLDB 2013) are of this kind, and so is pessimistic logging (Elnozahy et al., "A
Survey of Rollback-Recovery Protocols in Message-Passing Systems", 2002, section 4.1).
"""
