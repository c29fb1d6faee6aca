"""Uncoordinated checkpoints: each instance takes its own, and senders keep what they have sent.

UNC of "CheckMate" (ICDE 2024); Wang, Huang, Lin and Chung, "Progressive Retry for Software Error Recovery in
Distributed Systems", 1993, and "Checkpoint Space Reclamation for Uncoordinated Checkpointing in
Message-Passing Systems", 1995.
"""
