"""Communication-induced checkpoints: uncoordinated ones, and more of them where one of these would be useless.

Hélary, Mostefaoui, Netzer and Raynal, "Communication-Based Prevention of Useless Checkpoints in Distributed
Computations", 2000 (HMNR); CIC of "CheckMate" (ICDE 2024).
"""
